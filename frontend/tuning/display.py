"""Progress of tuning in a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

from tilewright.runtime.tuner.session import Progress

from .report import time_text
from .work import Launched


class Display:
    """A line with a bar: the kernel, finished candidates, the best so far and its gain, time left.

    count: number of kernels. budget: seconds, or None. shown: whether to show it; None: if stderr
        is a terminal.
    """

    def __init__(self, count: int, budget: float | None, shown: bool | None):
        self._count, self._budget, self._start = count, budget, time.monotonic()
        self._bar: Any = None
        self._task: Any = None
        self._shown = sys.stderr.isatty() if shown is None else shown

    def __enter__(self) -> Display:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = Progress(
                TextColumn("{task.fields[place]} [bold]{task.description}"),
                BarColumn(bar_width=20),
                MofNCompleteColumn(),
                TextColumn("{task.fields[found]}"),
                TextColumn("{task.fields[left]}"),
                console=Console(stderr=True),
                transient=True,
            )
            self._task = self._bar.add_task("", place="", found="", left="")
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, number: int, launched: Launched) -> None:
        """Start the line of another kernel."""
        if self._bar is not None:
            place = f"[{number + 1}/{self._count}]".replace("[", r"\[")
            self._bar.reset(
                self._task, description=launched.kernel.name, place=place, found="", left=""
            )

    def show(self, progress: Progress) -> None:
        if self._bar is None:
            return
        found = ""
        if progress.best is not None:
            found = f"best {time_text(progress.best)}, {progress.gain:.2f}x the default"
        self._bar.update(
            self._task,
            completed=progress.candidates,
            total=progress.most,
            found=found,
            left=self._left(),
        )

    def _left(self) -> str:
        if self._budget is None:
            return ""
        left = self._budget - (time.monotonic() - self._start)
        return f"{max(left, 0.0):.0f} s left"
