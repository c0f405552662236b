"""torch.autograd.profiler_util: the events of a profile, and the tables and traces made of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["EventList", "FormattedTimesMixin", "FunctionEvent", "FunctionEventAvg", "Interval"]


class Interval(NamedTuple):
    """A span of time in microseconds from the profile's start."""

    start: float
    end: float

    def elapsed_us(self) -> float:
        return self.end - self.start


def _time(microseconds: float) -> str:
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if microseconds >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def _memory(count: float) -> str:
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{int(count)} B"


class FormattedTimesMixin:
    """Times of an event as texts."""

    cpu_time_str = property(lambda self: _time(self.cpu_time))
    cpu_time_total_str = property(lambda self: _time(self.cpu_time_total))
    self_cpu_time_total_str = property(lambda self: _time(self.self_cpu_time_total))
    device_time_str = device_time_total_str = self_device_time_total_str = _time(0.0)


@dataclass
class FunctionEvent(FormattedTimesMixin):
    """An op that ran or a block of the user, or all of one kind together (`FunctionEventAvg`).

    Times are microseconds from the profile's start. The `self` time and memory are those outside of
    inner events, which are the `cpu_children`.

    input_shapes: of the op's operands; stack: the line that recorded it; flops: the operations of
    its products; cpu_memory_usage: the bytes of its results.
    """

    name: str
    start: float
    cpu_time_total: float
    count: int = 1
    self_cpu_time_total: float = 0.0
    thread: int = 0
    cpu_children: list[FunctionEvent] = field(default_factory=list, repr=False)
    cpu_parent: FunctionEvent | None = field(default=None, repr=False)
    input_shapes: Any = field(default_factory=list)
    stack: list[str] = field(default_factory=list, repr=False)
    flops: int = 0
    self_cpu_memory_usage: int = 0
    cpu_memory_usage: int = 0
    is_user_annotation: bool = False
    id: int = 0

    @property
    def key(self) -> str:
        """What events of one kind share. The steps of a schedule are of one kind."""
        return "ProfilerStep*" if self.name.startswith("ProfilerStep#") else self.name

    @property
    def cpu_time(self) -> float:
        return self.cpu_time_total / self.count

    @property
    def time_range(self) -> Interval:
        return Interval(self.start, self.start + self.cpu_time_total)

    def add(self, other: FunctionEvent) -> FunctionEvent:
        """Count another event of this kind."""
        for each in _SUMS:
            setattr(self, each, getattr(self, each) + getattr(other, each))
        return self

    cuda_time_total = device_time_total = self_cuda_time_total = self_device_time_total = 0.0
    cuda_time = device_time = 0.0
    device_memory_usage = self_device_memory_usage = 0
    cuda_memory_usage = self_cuda_memory_usage = 0
    is_async = is_remote = is_legacy = False
    node_id = -1


_SUMS = (
    "cpu_time_total self_cpu_time_total count flops cpu_memory_usage self_cpu_memory_usage"
).split()


class FunctionEventAvg(FunctionEvent):
    """All events of one kind together."""


_WIDTH = 12


class EventList(list[FunctionEvent]):
    """Events, which print as a table. The options say what the profile was asked to collect."""

    def __init__(
        self, events: Iterable[FunctionEvent] = (), profile_memory: bool = False, **options: Any
    ):
        super().__init__(events)
        self._with_memory = profile_memory

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
        """The events as PyTorch prints them. sort_by: a time, a size of memory or `count`, the
        largest first."""
        shown = [e for e in self if not (top_level_events_only and e.cpu_parent is not None)]
        if sort_by is not None:
            shown.sort(key=lambda e: getattr(e, sort_by), reverse=True)
        if not shown:
            return ""
        whole = self.self_cpu_time_total

        def share(time: float) -> str:
            return f"{100 * time / whole if whole else 0.0:.2f}%"

        def cut(text: str, width: int | None) -> str:
            return text if width is None or len(text) < width else f"{text[: width - 3]}..."

        names = max_name_column_width
        columns: list[tuple[str, Any]] = [
            ("Name", lambda e: cut(e.name, names)),
            ("Self CPU %", lambda e: share(e.self_cpu_time_total)),
            ("Self CPU", lambda e: e.self_cpu_time_total_str),
            ("CPU total %", lambda e: share(e.cpu_time_total)),
            ("CPU total", lambda e: e.cpu_time_total_str),
            ("CPU time avg", lambda e: e.cpu_time_str),
        ]
        if self._with_memory:
            columns += [
                ("CPU Mem", lambda e: _memory(e.cpu_memory_usage)),
                ("Self CPU Mem", lambda e: _memory(e.self_cpu_memory_usage)),
            ]
        columns.append(("# of Calls", lambda e: str(e.count)))
        if any(e.input_shapes for e in shown):
            shapes = max_shapes_column_width
            columns.append(("Input Shapes", lambda e: cut(str(e.input_shapes), shapes)))
        if any(e.stack for e in shown):
            columns.append(
                ("Source Location", lambda e: cut("; ".join(e.stack), max_src_column_width))
            )
        most = max(e.flops for e in shown)
        if most:
            power = min(max(len(str(most)) - 1, 0) // 3, 4)
            title = f"Total {('', 'K', 'M', 'G', 'T')[power]}FLOPs"
            columns.append((title, lambda e: f"{e.flops / 1000**power:.3f}" if e.flops else "--"))
        rows = [[text(e) for _, text in columns] for e in shown]
        titles = [title for title, _ in columns]
        widths = [max(_WIDTH, len(t), *(len(r[i]) for r in rows)) for i, t in enumerate(titles)]
        widths[0] = min(max(len(e.name) for e in shown) + 4, names or 1 << 20)
        line = "  ".join("-" * w for w in widths) + "  "
        lines = [header] if header is not None else []
        for i, row in enumerate([titles, *(rows if row_limit < 0 else rows[:row_limit])]):
            text = "  ".join(c.rjust(w) for c, w in zip(row, widths, strict=True)) + "  "
            lines += [text] if i else [line, text, line]
        return "\n".join([*lines, line, f"Self CPU time total: {_time(whole)}", ""])

    def __str__(self) -> str:
        return self.table()

    def key_averages(
        self,
        group_by_input_shapes: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        """One event for each name; also for each list of shapes, or line of the program."""
        found: dict[Any, FunctionEvent] = {}
        for e in self:
            shapes = e.input_shapes if group_by_input_shapes else []
            stack = e.stack[:group_by_stack_n]
            key = e.key, str(shapes), tuple(stack)
            if key in found:
                found[key].add(e)
            else:
                found[key] = FunctionEventAvg(
                    e.key,
                    e.start,
                    input_shapes=shapes,
                    stack=stack,
                    is_user_annotation=e.is_user_annotation,
                    **{each: getattr(e, each) for each in _SUMS},
                )
        return EventList(found.values(), self._with_memory)

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds; that of inner events counts once."""
        return sum(e.self_cpu_time_total for e in self)

    def total_average(self) -> FunctionEventAvg:
        total = FunctionEventAvg("Total", 0.0, 0.0, count=0)
        for e in self:
            total.add(e)
        total.count = max(total.count, 1)
        return total

    def export_chrome_trace(self, path: str, metadata: dict[str, Any] | None = None) -> None:
        """Write the events for chrome://tracing and Perfetto, and what else belongs to the run;
        compressed to a name that ends in `.gz`."""
        import gzip
        import json

        process = os.getpid()
        rows: list[dict[str, Any]] = []
        for e in self:
            details: dict[str, Any] = {"External id": e.id}
            if e.input_shapes:
                details["Input Dims"] = e.input_shapes
            if e.stack:
                details["Call stack"] = ";".join(e.stack)
            rows.append(
                {
                    "ph": "X",
                    "cat": "user_annotation" if e.is_user_annotation else "cpu_op",
                    "name": e.name,
                    "pid": process,
                    "tid": e.thread,
                    "ts": e.start,
                    "dur": e.cpu_time_total,
                    "args": details,
                }
            )
        trace = {"schemaVersion": 1, "displayTimeUnit": "ms", "traceEvents": rows}
        made = gzip.open if path.endswith(".gz") else open
        with made(path, "wt", encoding="utf-8") as file:
            json.dump(trace | (metadata or {}), file)

    def export_stacks(self, path: str, metric: str) -> None:
        """Write lines of the program with a time each, for tools that draw flame graphs."""
        with open(path, "w", encoding="utf-8") as file:
            for e in self:
                if e.stack and int(getattr(e, metric)):
                    file.write(f"{';'.join(reversed(e.stack))} {int(getattr(e, metric))}\n")
