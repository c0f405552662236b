"""Tuning sessions: searches one after another. Each result is stored at once."""

from __future__ import annotations

import contextlib
import importlib.util
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.codegen.kernel import Bundle, Kernel, Reduce
from tilewright.codegen.lower.external import Autotuned
from tilewright.codegen.schedule.space import Space

from ..engine import Engine
from ..results import key
from ..results.database import Database
from ..results.record import MEASURED, PRIOR, About, CannotTune, Found, Options, Record, text_of
from . import search
from .bench import Bench

if TYPE_CHECKING:
    from .gpu import Offline

COMPILED = {"quick": 4, "full": 16, "exhaustive": 64}
"""The number of schedules compiled for a ranking, by effort."""


@dataclass
class Progress:
    """The progress of a kernel's search.

    candidates: measured or bad ones, at most `most`. best: seconds of the best so far, default: of
        the default. trail: (seconds since the search began, seconds of a launch) of each measured
        candidate.
    """

    about: About
    most: int
    candidates: int = 0
    best: float | None = None
    default: float | None = None
    trail: list[tuple[float, float]] = field(default_factory=list)

    @property
    def gain(self) -> float:
        return self.default / self.best if self.best and self.default else 1.0


@dataclass(frozen=True)
class Result:
    """The result of a kernel's search.

    measured: candidates measured this time; known: in all. complete: whether the search was
        finished. An interrupted search continues at the next call.
    """

    record: Record
    space: int
    measured: int
    known: int
    complete: bool
    seconds: float
    progress: Progress


class Session:
    """A tuning session on one engine.

    database: holds the results. effort: of each search. budget: seconds for all searches, None for
        no limit. on: called with each new result. turn: makes the context manager to hold while
        measuring. engine_name: the name by which workers find the engine; by default its device.
    """

    def __init__(
        self,
        engine: Engine[Any],
        database: Database,
        effort: str = "full",
        budget: float | None = None,
        on: Callable[[Progress], None] = lambda progress: None,
        turn: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext,
        engine_name: str | None = None,
    ):
        if effort not in search.EFFORTS:
            known = ", ".join(search.EFFORTS)
            raise ValueError(f"effort: expected one of {known}, got {effort!r}")
        self.engine, self.database, self.effort = engine, database, effort
        self._deadline = None if budget is None else time.monotonic() + budget
        self._on, self._turn, self._engine_name = on, turn, engine_name

    def expired(self) -> bool:
        return self._deadline is not None and time.monotonic() > self._deadline

    def tune(self, kernel: Kernel | Bundle | Autotuned, family: str = "") -> Result:
        """Search the schedules of a kernel, or continue an interrupted search.

        KeyboardInterrupt reaches the caller. The measurements up to then are stored, and the best
        schedule is chosen. CannotTune for a kernel whose default fails on the operands.
        """
        return _Search(self, kernel, family or family_of(kernel)).run()


class _Search:
    """The search of one kernel."""

    def __init__(self, session: Session, kernel: Kernel | Bundle | Autotuned, family: str):
        self.session, self.kernel = session, kernel
        self.engine, self.database = session.engine, session.database
        self.space: Space[Any] = self.engine.space(kernel)
        self.key = key.of(kernel, self.engine.identity, self.engine.versions)
        dtype = kernel.outputs[0].dtype.name if kernel.outputs else ""
        self.about = About(kernel.name, family, dtype, len(self.space))
        self.progress = Progress(self.about, search.count(self.space, session.effort))
        self.state: search.State[Any] = search.State()
        self.texts = {s: text_of(self.engine.options(s)) for s in self.space.schedules}
        self.seconds: float | None = None  # of the default
        self.measured = 0
        self.start = time.monotonic()

    def run(self) -> Result:
        self._recall()
        record = self.database.record(self.key)
        complete = record is not None and self._is_done(record)
        if not complete and len(self.space) > 1:
            complete = self._search()
        record = self.database.record(self.key) or Record(self.key, self.about)
        known = len(self.state.ratios) + len(self.state.bad)
        return Result(
            record, len(self.space), self.measured, known, complete,
            time.monotonic() - self.start, self.progress,
        )  # fmt: skip

    def _is_done(self, record: Record) -> bool:
        """Whether a search of at least this effort was finished in the same space."""
        efforts = list(search.EFFORTS)
        if record.effort not in efforts or record.about.space != len(self.space):
            return False
        return efforts.index(record.effort) >= efforts.index(self.session.effort)

    def _search(self) -> bool:
        """Search until the end or until time is up; whether the end was reached."""
        session, default = self.session, self.space.default
        with Bench(self.kernel, self.engine, session._engine_name) as bench:
            self.bench = bench
            for batch in search.batches(self.space, self.state, session.effort, self._seeds()):
                if session.expired():
                    self._choose()
                    return False
                with _alone(self.database.path):
                    self._recall()  # another tuner may have measured some meanwhile
                    batch = [s for s in batch if not self.state.knows(s)]
                    if batch:
                        self._keep(search.measure_batch(batch, default, self._measure), batch)
            if not self.state.ratios:
                return False
            with _alone(self.database.path):
                winner, seen = search.final(self.state, default, self._measure, session.expired)
                self._keep(seen, [])
        self._choose(winner)
        self.database.finish(self.key, self.about, session.effort)
        return True

    def _measure(self, schedules: Sequence[Any], rounds: int) -> Mapping[Any, Sequence[float]]:
        self.bench.prepare(schedules)
        with self.session._turn():
            seen = self.bench.measure(schedules, rounds)
        if self.seconds is None and self.space.default in seen:
            times = sorted(seen[self.space.default])
            self.seconds = times[len(times) // 2]
        return seen

    def _recall(self) -> None:
        """Read the database's results for candidates of this space."""
        record = self.database.record(self.key)
        if record is None:
            return
        default = record.candidates.get(self.texts[self.space.default])
        if default is None or default.seconds is None or default.status != MEASURED:
            return
        self.seconds = self.seconds or default.seconds
        for schedule, text in self.texts.items():
            found = record.candidates.get(text)
            if found is None or found.status == PRIOR:
                continue
            if found.status == MEASURED and found.seconds is not None:
                self.state.ratios[schedule] = found.seconds / default.seconds
            else:
                self.state.bad.add(schedule)
        self._report()

    def _keep(self, seen: Mapping[Any, search.Times], batch: Sequence[Any]) -> None:
        """Keep the results of a batch in memory and on disk."""
        found: dict[str, Found] = {}
        for schedule, times in seen.items():
            assert self.seconds is not None
            if schedule not in self.state.ratios:
                self.measured += 1
            self.state.ratios[schedule] = times.ratio
            took = time.monotonic() - self.start
            self.progress.trail.append((took, times.ratio * self.seconds))
            found[self.texts[schedule]] = Found(
                MEASURED, times.ratio * self.seconds, times.spread, times.rounds
            )
        for schedule in (*batch, *seen):
            bad = self.bench.found.get(schedule)
            if bad is not None:
                self.measured += schedule not in self.state.bad
                self.state.bad.add(schedule)
                self.state.ratios.pop(schedule, None)
                found[self.texts[schedule]] = bad
        if self.space.default in self.state.bad:
            bad = self.bench.found[self.space.default]
            raise CannotTune(f"its default schedule is {bad.status}: {bad.reason}")
        self.database.add(self.key, self.about, found)
        self._choose()
        self._report()

    def _choose(self, winner: Any = None) -> None:
        """Store the best so far as the schedule that kernels get from now on."""
        best = self.state.best if winner is None else winner
        if best is None or self.seconds is None:
            return
        seconds = self.state.ratios[best] * self.seconds
        self.database.choose(self.key, self.about, self.texts[best], seconds, self.seconds)

    def _report(self) -> None:
        progress, best = self.progress, self.state.best
        progress.candidates = len(self.state.ratios) + len(self.state.bad)
        if best is not None and self.seconds is not None:
            progress.default = self.seconds
            progress.best = self.state.ratios[best] * self.seconds
        self.session._on(progress)

    def _seeds(self) -> list[Any]:
        """The best schedules of the nearest other sizes, and the first ones of an offline
        ranking."""
        near = []
        for record in self.database.records(self.key.device):
            same = record.key.structure == self.key.structure and record.chosen is not None
            away = key.distance(record.key.sizes, self.key.sizes) if same else None
            if away is not None and record.key != self.key:
                near.append((away, self.engine.schedule(record.chosen or {})))
        prior = self.database.record(self.engine.prior_key(self.kernel))
        ranked: list[tuple[float, int, Any]] = []
        if prior is not None:
            by_text = {text: s for s, text in self.texts.items()}
            ranked = [
                (found.seconds or 0.0, self.space.rank[by_text[text]], by_text[text])
                for text, found in prior.candidates.items()
                if found.status == PRIOR and text in by_text
            ]
        nearest = [s for _, s in sorted(near, key=lambda each: each[0])[:3]]
        return [*nearest, *(s for *_, s in sorted(ranked, key=lambda each: each[:2])[:3])]


def family_of(kernel: Kernel | Bundle | Autotuned) -> str:
    """The family of a kernel, in a word or two."""
    if isinstance(kernel, Autotuned):
        return "custom"
    if isinstance(kernel, Bundle):
        return "update"
    if kernel.is_chained:
        return "attention" if kernel.has_dot else "rows and columns"
    if kernel.has_dot:
        return "product"
    if any(isinstance(v, Reduce) for v in kernel.values):
        return "reduction"
    return "update" if kernel.is_update else "elementwise"


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let other tuners on this machine wait while one measures: they would slow each other down."""
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        yield
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f"{path.name}.lock"), "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True)
class Ranking:
    """A kernel's schedules, ranked by the cost model. first: the best ones with their seconds, and
    with the compiler's figures for the `compiled` ones. seconds: time of the ranking."""

    about: About
    default: float
    first: Sequence[tuple[Options, float]]
    compiled: int
    seconds: float


def rank(
    engine: Offline, database: Database, kernel: Kernel | Bundle, effort: str = "full",
    family: str = "",
) -> Ranking:  # fmt: skip
    """Rank schedules without a measurement, and store the ranking as a start for a search on the
    GPU.

    The first ones are compiled, and ranked again by the registers and the memory they take.
    Predictions are marked as such: no kernel gets its schedule from them.
    """
    from .gpu import compiled_ranks

    start = time.monotonic()
    space = engine.space(kernel)
    about = About(
        kernel.name, family or family_of(kernel), kernel.outputs[0].dtype.name, len(space)
    )
    predicted = dict(space.predicted)
    wanted = list(dict.fromkeys([*space.ranked[: COMPILED[effort]], space.default]))
    if importlib.util.find_spec("triton") is None:
        wanted = []
    if wanted:
        compiled = compiled_ranks(engine, kernel, wanted)
        predicted |= {s: seconds for s, (seconds, _) in compiled.items()}
    # Schedules that weren't compiled come later, as their registers are guessed.
    order = sorted(predicted, key=lambda s: (bool(wanted) and s not in wanted, predicted[s]))
    finite = [(engine.options(s), predicted[s]) for s in order if predicted[s] < float("inf")]
    found = {text_of(options): Found(PRIOR, seconds) for options, seconds in finite}
    database.add(engine.prior_key(kernel), about, found)
    return Ranking(about, predicted[space.default], finite, len(wanted), time.monotonic() - start)
