"""torch.autograd.profiler, and what torch.profiler is made of: times of named blocks.

Work is recorded when Python calls it and computed later, fused. So a profile has the blocks of
`record_function`, each computed to its end, and no operators. `tilewright explain` shows kernels.
"""

from __future__ import annotations

import bisect
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from .. import recording

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "profile", "record_function"]


class Interval(NamedTuple):
    """A span of time in microseconds from the profile's start."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


@dataclass
class FunctionEvent:
    """A block, or all blocks of one name. Times are microseconds from the profile's start; the
    `self` time is that outside of inner blocks, which are the `cpu_children`."""

    name: str
    start: float
    cpu_time_total: float
    count: int = 1
    self_cpu_time_total: float = 0.0
    thread: int = 0
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)
    cpu_parent: FunctionEvent | None = field(default=None, repr=False)

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count

    @property
    def time_range(self) -> Interval:
        return Interval(self.start, self.start + self.cpu_time_total)

    @property
    def input_shapes(self) -> list[Any]:
        """None: a block has no inputs."""
        return []

    cuda_time_total = device_time_total = self_cuda_time_total = self_device_time_total = 0.0
    cuda_time = device_time = 0.0
    cpu_memory_usage = self_cpu_memory_usage = 0


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


_COLUMNS = ("Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg", "# of Calls")
_WIDTH = 12


class EventList(list[FunctionEvent]):
    """Events, which print as a table."""

    def table(
        self,
        sort_by: str | None = None,
        row_limit: int = 100,
        max_src_column_width: int = 75,
        max_name_column_width: int = 55,
        max_shapes_column_width: int = 80,
        header: str | None = None,
        top_level_events_only: bool = False,
        time_unit: str | None = None,
    ) -> str:
        """The events as PyTorch prints them. sort_by: a time or `count`, the largest first."""
        shown = [e for e in self if not (top_level_events_only and e.cpu_parent is not None)]
        if sort_by is not None:
            shown.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        if not shown:
            return ""
        whole = self.self_cpu_time_total
        longest = max(len(e.name) for e in shown) + 4
        width = min(longest, max_name_column_width)
        names = [e.name if len(e.name) < width else f"{e.name[: width - 3]}..." for e in shown]
        line = "  ".join(["-" * width, *["-" * _WIDTH] * len(_COLUMNS)]) + "  "

        def row(name: str, cells: Iterable[str]) -> str:
            return "  ".join([name.rjust(width), *(c.rjust(_WIDTH) for c in cells)]) + "  "

        lines = [header] if header is not None else []
        lines += [line, row("Name", _COLUMNS), line]
        for name, e in list(zip(names, shown, strict=True))[: None if row_limit < 0 else row_limit]:
            shares = [
                f"{100 * t / whole if whole else 0.0:.2f}%"
                for t in (e.self_cpu_time_total, e.cpu_time_total)
            ]
            own, total, mean = map(_time, (e.self_cpu_time_total, e.cpu_time_total, e.cpu_time))
            lines.append(row(name, (shares[0], own, shares[1], total, mean, str(e.count))))
        return "\n".join([*lines, line, f"Self CPU time total: {_time(whole)}", ""])

    def __str__(self) -> str:
        return self.table()

    def key_averages(self, *args: Any, **options: Any) -> EventList:
        """One event for each name."""
        found: dict[str, FunctionEvent] = {}
        for e in self:
            if e.name in found:
                found[e.name].cpu_time_total += e.cpu_time_total
                found[e.name].self_cpu_time_total += e.self_cpu_time_total
                found[e.name].count += 1
            else:
                own = e.self_cpu_time_total
                found[e.name] = FunctionEvent(e.name, e.start, e.cpu_time_total, 1, own)
        return EventList(found.values())

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds; that of inner blocks counts once."""
        return sum(e.self_cpu_time_total for e in self)

    def total_average(self) -> FunctionEvent:
        total = sum(e.cpu_time_total for e in self)
        count = sum(e.count for e in self)
        return FunctionEvent("Total", 0.0, total, max(count, 1), self.self_cpu_time_total)

    def export_chrome_trace(self, path: str) -> None:
        """Write the events for chrome://tracing."""
        rows = [
            {"name": e.name, "ph": "X", "ts": e.start, "dur": e.cpu_time_total, "pid": 0, "tid": 0}
            for e in self
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": rows}, file)


_running: list[profile] = []


class record_function(contextlib.ContextDecorator):
    """Names a block in the profiles that run. Its work is computed before it ends."""

    def __init__(self, name: str, args: str | None = None):
        self.name, self.args = name, args
        self._starts: list[float] = []

    def __enter__(self) -> record_function:
        if _running:
            recording.end_step()
        self._starts.append(time.perf_counter())
        return self

    def __exit__(self, *exc: object) -> None:
        start = self._starts.pop()
        if _running:
            recording.end_step()
        for each in _running:
            each._add(self.name, start, time.perf_counter())


class profile:
    """Collects the blocks of `record_function`. The options choose among PyTorch's collectors, of
    which there is this one."""

    function_events: EventList

    def __init__(self, enabled: bool = True, **options: Any):
        self.enabled = enabled
        self.function_events = EventList()
        self._start = 0.0

    def _add(self, name: str, start: float, end: float) -> None:
        whole = (end - start) * 1e6
        event = FunctionEvent(name, (start - self._start) * 1e6, whole)
        event.thread = threading.get_ident()
        for inner in reversed(self.function_events):  # those in it have ended before
            if inner.start < event.start:
                break
            if inner.cpu_parent is None and inner.thread == event.thread:
                inner.cpu_parent = event
                event.cpu_children.insert(0, inner)
        event.self_cpu_time_total = whole - sum(e.cpu_time_total for e in event.cpu_children)
        bisect.insort(self.function_events, event, key=lambda e: e.start)

    def __enter__(self) -> profile:
        self._start = time.perf_counter()
        if self.enabled:
            _running.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        recording.end_step()
        if self in _running:
            _running.remove(self)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all blocks, in microseconds."""
        return self.function_events.self_cpu_time_total

    def key_averages(self, *args: Any, **options: Any) -> EventList:
        return self.function_events.key_averages()

    def events(self) -> EventList:
        return self.function_events

    def table(self, **options: Any) -> str:
        return self.function_events.table(**options)

    def export_chrome_trace(self, path: str) -> None:
        self.function_events.export_chrome_trace(path)

    def total_average(self) -> FunctionEvent:
        return self.function_events.total_average()


def _profiler_enabled() -> bool:
    """Whether blocks are collected now."""
    return bool(_running)


@contextlib.contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> Iterator[None]:
    """Calls are recorded, not launched one by one: none is marked."""
    yield


emit_itt = emit_nvtx
