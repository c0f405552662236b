"""torch.autograd.profiler, and what torch.profiler is made of: times of named blocks.

Work is recorded when Python calls it and computed later, fused. So a profile has the blocks of
`record_function`, each computed to its end, and no operators. `tilewright explain` shows kernels.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from .. import recording

__all__ = ["EventList", "FunctionEvent", "emit_itt", "emit_nvtx", "profile", "record_function"]


@dataclass
class FunctionEvent:
    """A block, or all blocks of one name. Times are microseconds from the profile's start."""

    name: str
    start: float
    cpu_time_total: float
    count: int = 1

    @property
    def key(self) -> str:
        return self.name

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count

    self_cpu_time_total = property(lambda self: self.cpu_time_total)
    cuda_time_total = device_time_total = 0.0


class EventList(list[FunctionEvent]):
    """Events, which print as a table."""

    def table(self, sort_by: str | None = None, row_limit: int = 100, **options: Any) -> str:
        shown = sorted(self, key=lambda e: -e.cpu_time_total) if sort_by else list(self)
        width = max([4, *(len(e.name) for e in shown)])
        lines = [f"{'Name':<{width}}  {'CPU total':>12}  {'CPU time avg':>12}  {'# of Calls':>10}"]
        for e in shown[: None if row_limit < 0 else row_limit]:
            total, mean = f"{e.cpu_time_total:.1f}us", f"{e.cpu_time:.1f}us"
            lines.append(f"{e.name:<{width}}  {total:>12}  {mean:>12}  {e.count:>10}")
        return "\n".join(lines)

    __str__ = table

    def key_averages(self, *args: Any, **options: Any) -> EventList:
        """One event for each name."""
        found: dict[str, FunctionEvent] = {}
        for e in self:
            if e.name in found:
                found[e.name].cpu_time_total += e.cpu_time_total
                found[e.name].count += 1
            else:
                found[e.name] = FunctionEvent(e.name, e.start, e.cpu_time_total)
        return EventList(found.values())

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds."""
        return sum(e.cpu_time_total for e in self)

    def total_average(self) -> FunctionEvent:
        total = sum(e.cpu_time_total for e in self)
        return FunctionEvent("Total", 0.0, total, max(len(self), 1))

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
        self.function_events.append(
            FunctionEvent(name, (start - self._start) * 1e6, (end - start) * 1e6)
        )

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
