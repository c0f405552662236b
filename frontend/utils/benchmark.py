"""torch.utils.benchmark: times of statements, with tables that compare them.

    t = benchmark.Timer("f(x)", globals={"f": f, "x": x}).blocked_autorange()
    print(t)

Each execution of a statement is computed to its end, the value that nobody keeps too.
"""

from __future__ import annotations

import enum
import textwrap
import timeit as _timeit
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from tilewright.ir.location import at_user_line

from .. import paths, recording
from ..settings.threads import get_num_threads, set_num_threads

__all__ = [
    "Colorize",
    "Compare",
    "Language",
    "Measurement",
    "TaskSpec",
    "Timer",
    "ordered_unique",
    "select_unit",
    "set_torch_threads",
    "timer",
    "trim_sigfig",
    "unit_to_english",
]

_UNITS = (("ns", "nanoseconds", 1e-9), ("us", "microseconds", 1e-6), ("ms", "milliseconds", 1e-3))


def timer() -> float:
    """The clock, when all that was recorded has been computed."""
    recording.flush()
    return _timeit.default_timer()


def _unit(seconds: float) -> tuple[str, str, float]:
    """The largest unit in which a time is one or more: (sign, name, seconds)."""
    found = _UNITS[0]
    for each in (*_UNITS, ("s", "seconds", 1.0)):
        if seconds >= each[2]:
            found = each
    return found


def select_unit(t: float) -> tuple[str, float]:
    """The unit in which a time of `t` seconds is shown: (sign, seconds)."""
    sign, _, scale = _unit(t)
    return (sign, 1) if sign == "s" else (sign, scale)


def unit_to_english(u: str) -> str:
    """The name of a unit: of "us" microsecond."""
    return {sign: name.removesuffix("s") for sign, name, _ in _UNITS}.get(u, "second")


def trim_sigfig(x: float, n: int) -> float:
    """`x` rounded to `n` digits."""
    scale = 10.0 ** (np.floor(np.log10(abs(x))) + 1 - n)
    return float(np.round(x / scale) * scale)


def ordered_unique(elements: Iterable[Any]) -> list[Any]:
    """Each element once, in their order."""
    return list(dict.fromkeys(elements))


@contextmanager
def set_torch_threads(n: int) -> Iterator[None]:
    """The block in which `n` threads compute."""
    before = get_num_threads()
    set_num_threads(n)
    try:
        yield
    finally:
        set_num_threads(before)


class Language(enum.Enum):
    """The language of a statement that is timed."""

    PYTHON = 0
    CPP = 1


class Colorize(enum.Enum):
    """Where tables have colors. These are text."""

    NONE = "none"
    COLUMNWISE = "columnwise"
    ROWWISE = "rowwise"


@dataclass(frozen=True)
class TaskSpec:
    """What is timed, and the names that tables show."""

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    def setup_str(self) -> str:
        """The setup, unless it does nothing."""
        return "" if self.setup == "pass" or not self.setup else f"setup: {self.setup.strip()}"

    def summarize(self) -> str:
        """The title, with the statement and the setup if the title doesn't tell."""
        parts = [self.title, self.description or "", self.setup_str()]
        return "\n".join(part for part in parts if part)

    @property
    def title(self) -> str:
        if self.label is None:
            return self.stmt.split("\n")[0]
        return self.label + (f": {self.sub_label}" if self.sub_label else "")


@dataclass
class Measurement:
    """Times of a task. number_per_run: how often the statement ran in each; raw_times: seconds of
    these runs."""

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[Any, Any] | None = field(default=None)

    @property
    def times(self) -> list[float]:
        """Seconds of one execution, for each run."""
        return [t / self.number_per_run for t in self.raw_times]

    @property
    def median(self) -> float:
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """The range of the middle half of the times."""
        low, high = np.percentile(self.times, (25, 75))
        return float(high - low)

    @property
    def significant_figures(self) -> int:
        """How many digits the spread of the times leaves certain, from 1 to 4: by the width of the
        90 % interval around the mean of their middle half, at least the clock's 25 ns."""
        count = len(self.times)
        middle = sorted(self.times)[count // 4 : -(-3 * count // 4)]
        width = max(1.645 * float(np.std(middle)) / np.sqrt(len(middle)), 25e-9)
        return int(np.clip(np.floor(np.log10(self.median / width)), 1, 4))

    @property
    def title(self) -> str:
        return self.task_spec.title

    @property
    def env(self) -> str:
        return self.task_spec.env or ""

    @property
    def as_row_name(self) -> str:
        """The name of its row in a table."""
        return self.task_spec.sub_label or self.task_spec.stmt.split("\n")[0]

    @property
    def has_warnings(self) -> bool:
        return self.iqr > 0.1 * self.median

    def meets_confidence(self, threshold: float = 0.1) -> bool:
        return len(self.times) > 3 and self.iqr / self.median < threshold

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """One measurement for each task, of all its times."""
        found: dict[tuple[TaskSpec, int], list[float]] = {}
        for m in measurements:
            found.setdefault((m.task_spec, m.number_per_run), []).extend(m.raw_times)
        return [Measurement(count, times, spec) for (spec, count), times in found.items()]

    def __repr__(self) -> str:
        sign, _, scale = _unit(self.median)
        spec = self.task_spec
        lines = [self.title, *([spec.description] if spec.description else [])]
        if spec.setup != "pass":
            lines.append("setup: " + spec.setup.strip().replace("\n", "\n  "))
        count = len(self.raw_times)
        if count > 1:
            low, high = np.percentile(self.times, (25, 75))
            lines.append(f"  Median: {self.median / scale:.2f} {sign}")
            lines.append(
                f"  IQR:    {self.iqr / scale:.2f} {sign} ({low / scale:.2f} to {high / scale:.2f})"
            )
        else:
            lines.append(f"  {self.median / scale:.2f} {sign}")
        threads = f"{spec.num_threads} thread{'s' if spec.num_threads > 1 else ''}"
        plural = "s" if count > 1 else ""
        runs = f"{self.number_per_run} run{'s' if self.number_per_run > 1 else ''}"
        per = " per measurement" if count > 1 else " "
        lines.append(f"  {count} measurement{plural}, {runs}{per}, {threads}")
        return f"<{type(self).__module__}.Measurement object at {id(self):#x}>\n" + "\n".join(lines)


class Timer:
    """Times `stmt`, after `setup`, with the names in `globals`; both are Python.

    label, sub_label, description, env: names for tables. num_threads: how many threads compute
    while it is timed.
    """

    def __init__(
        self,
        stmt: str = "pass",
        setup: str = "pass",
        global_setup: str = "",
        timer: Callable[[], float] = timer,
        globals: dict[str, Any] | None = None,
        label: str | None = None,
        sub_label: str | None = None,
        description: str | None = None,
        env: str | None = None,
        num_threads: int = 1,
        language: str = "python",
    ):
        if str(language).lower().rpartition(".")[2] not in ("python", "py"):
            raise NotImplementedError(
                f"benchmark.Timer(language={language!r}): only Python is timed{at_user_line()}"
            )
        self._spec = TaskSpec(
            stmt, setup, global_setup, label, sub_label, description, env, num_threads
        )
        names = {"torch": __import__(__name__.partition(".")[0]), **(globals or {})}
        names[_DONE] = _done
        self._timer = _timeit.Timer(_complete(_dedented(stmt)), _dedented(setup), timer, names)

    def _seconds(self, number: int) -> float:
        with set_torch_threads(self._spec.num_threads):
            return self._timer.timeit(number)

    def repeat(self, repeat: int = -1, number: int = -1) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def autorange(self, callback: Any = None) -> NoReturn:
        raise NotImplementedError("See `Timer.blocked_autorange.`")

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """One run of `number` executions, after a warm-up."""
        self._seconds(max(number // 100, 2))
        return Measurement(number, [self._seconds(number)], self._spec)

    def _block(self, min_run_time: float) -> int:
        """How many executions make a run long enough for the clock."""
        number = 1
        while True:
            if self._seconds(number) >= min_run_time / 1000 or number >= 10**9:
                return number
            number *= 10

    def blocked_autorange(
        self, callback: Callable[[int, float], Any] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Runs of equally many executions, until `min_run_time` seconds are over."""
        number = self._block(min_run_time)
        times: list[float] = []
        while sum(times) < min_run_time:
            times.append(self._seconds(number))
            if callback is not None:
                callback(number, times[-1])
        return Measurement(number, times, self._spec)

    def adaptive_autorange(
        self,
        threshold: float = 0.1,
        *,
        min_run_time: float = 0.01,
        max_run_time: float = 10.0,
        callback: Callable[[int, float], Any] | None = None,
    ) -> Measurement:
        """As `blocked_autorange`, until the middle half of the times lies within `threshold` of
        the median, or `max_run_time` seconds are over."""
        number = self._block(min_run_time)
        found = Measurement(number, [], self._spec)
        while sum(found.raw_times) < max_run_time:
            found.raw_times.append(self._seconds(number))
            if callback is not None:
                callback(number, found.raw_times[-1])
            if sum(found.raw_times) >= min_run_time and found.meets_confidence(threshold):
                break
        return found


_DONE = "__computed__"


def _done(value: Any = None) -> None:
    """Have the statement's value computed, which its caller drops, and all that it has assigned."""
    recording.flush()


def _complete(stmt: str) -> str:
    """The statement, and the computation of what it has recorded."""
    try:
        compile(stmt, "<stmt>", "eval")
    except SyntaxError:
        return f"{stmt}\n{_DONE}()"
    return f"{_DONE}(({stmt}))"


def _dedented(code: str) -> str:
    return textwrap.dedent(code).strip() or "pass"


class Compare:
    """A table of measurements: a row for each sub_label (or statement), a column for each
    description."""

    def __init__(self, results: Sequence[Measurement]):
        self._results: list[Measurement] = []
        self._trims = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        for each in results:
            if not isinstance(each, Measurement):
                raise ValueError(
                    f"Expected an instance of `Measurement`, got {type(each)} instead."
                )
            self._results.append(each)

    def trim_significant_figures(self) -> None:
        """Show the digits that the spread of the times leaves certain."""
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """No colors: the table is text."""

    def highlight_warnings(self) -> None:
        """Nothing to highlight: `has_warnings` of a measurement tells."""

    def _cell(self, found: list[Measurement], scale: float) -> str:
        if not found:
            return ""
        median = float(np.median([t for m in found for t in m.times]))
        spread = max(m.iqr for m in found) / median if self._trims else 0.0
        return f"{median / scale:.{0 if spread > 0.05 else 1}f}"

    def _table(self, label: str, results: list[Measurement]) -> str:
        _, unit, scale = _unit(min(m.median for m in results))
        columns = list(dict.fromkeys(m.task_spec.description or "" for m in results))
        threads = list(dict.fromkeys(m.task_spec.num_threads for m in results))
        rows: list[list[str]] = []
        for count in threads:
            own = [m for m in results if m.task_spec.num_threads == count]
            rows.append([f"{count} threads:"])
            for name in dict.fromkeys(_row(m) for m in own):
                found = [
                    [m for m in own if _row(m) == name and (m.task_spec.description or "") == c]
                    for c in columns
                ]
                rows.append([f"      {name}", *(self._cell(ms, scale) for ms in found)])
        widths = [max(len(r[0]) for r in rows if len(r) > 1)]
        widths += [
            max(len(c), *(len(r[i + 1]) for r in rows if len(r) > 1)) for i, c in enumerate(columns)
        ]
        lines = ["  |  ".join(t.rjust(w) for t, w in zip(["", *columns], widths, strict=True))]
        for row in rows:
            cells = [row[0].ljust(widths[0])]
            cells += [t.rjust(w) for t, w in zip(row[1:], widths[1:], strict=False)]
            lines.append("  |  ".join(cells))
        whole = max(map(len, lines))
        lines = [
            line if "|" in line else line.rstrip() + " " + "-" * (whole - len(line.rstrip()) - 1)
            for line in lines
        ]
        title = f" {label} ".center(max(whole - 2, len(label) + 2), "-")
        return "\n".join([f"[{title}]", *lines, "", f"Times are in {unit} ({_unit(scale)[0]})."])

    def __str__(self) -> str:
        groups: dict[str, list[Measurement]] = {}
        for m in self._results:
            groups.setdefault(m.task_spec.label or m.title, []).append(m)
        return "\n\n".join(self._table(label, own) for label, own in groups.items())

    def print(self) -> None:
        print(self)


def _row(m: Measurement) -> str:
    return f"{m.as_row_name} ({m.env})" if m.env else m.as_row_name


def __getattr__(name: str) -> object:
    return paths.found(__name__, name)
