"""Finding the best schedules for the kernels of a program, from Python.

    report = tilewright.tune(step, x, y)     # runs step(x, y), then tunes its kernels
    print(report)

Results are stored on disk. This process and later ones compile their kernels with them. On the
command line this is `tilewright tune`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tilewright.runtime.results import choices, place
from tilewright.runtime.results.database import Database
from tilewright.runtime.results.record import CannotTune
from tilewright.runtime.tuner import engines
from tilewright.runtime.tuner.session import Session

from .. import recording
from ..recording import flushing
from .report import Report, TunedKernel
from .work import Launched, launched_by, launched_so_far

__all__ = ["Launched", "Report", "TunedKernel", "launched_by", "launched_so_far", "tune"]


def tune(
    function: Callable[..., Any] | None = None,
    *args: Any,
    effort: str = "full",
    budget: float | None = None,
    progress: bool | None = None,
    **kwargs: Any,
) -> Report:
    """Tune the kernels that a call of `function` launches, the busiest first. Without a function,
    tune all kernels that this process has run.

    effort: `quick`, `full` or `exhaustive`: the share of each space to measure. budget: seconds, or
        None for no limit. progress: whether to show it; None: if stderr is a terminal. Kernels with
        a complete search aren't measured again. Ctrl-C ends the search; its results so far are
        stored and reported.

    RuntimeError if TW_TUNE_FILE pins schedules; ValueError for an unknown effort.
    """
    work = launched_so_far() if function is None else launched_by(function, args, kwargs)
    return tune_kernels(work, effort, budget, progress)


def tune_kernels(
    work: list[Launched],
    effort: str = "full",
    budget: float | None = None,
    progress: bool | None = None,
    database: Database | None = None,
) -> Report:
    """Tune kernels in order. Arguments as in `tune`."""
    from .display import Display

    if place.pinned():
        raise RuntimeError(
            f"TW_TUNE_FILE={place.pinned()} pins the schedules, so nothing is tuned: unset it to "
            "tune"
        )
    results: list[TunedKernel] = []
    skipped: list[tuple[str, str]] = []
    interrupted = False
    with Display(len(work), budget, progress) as display, database or Database() as kept:
        end = None if budget is None else time.monotonic() + budget
        try:
            for i, each in enumerate(work):
                left = None if end is None else end - time.monotonic()
                session = Session(engines.named(each.engine), kept, effort, left, display.show)
                if session.expired():
                    break
                display.begin(i, each)
                try:
                    results.append(TunedKernel(each, session.tune(each.kernel, each.family)))
                except CannotTune as reason:
                    skipped.append((each.kernel.name, str(reason)))
        except KeyboardInterrupt:
            interrupted = True
    _recompile()
    return Report(tuple(results), tuple(skipped), len(work), interrupted)


def _recompile() -> None:
    """Drop compiled plans, so that kernels are compiled with the new results."""
    choices.forget()
    recording.flush()
    flushing.clear_tables()
