"""torch.autograd.profiler, and what torch.profiler is made of: times of ops and of named blocks.

Work is recorded when Python calls it and computed later, fused. While a profile collects, the graph
runs op by op instead, on the host, so that each op has a time of its own: those of the forward
pass, of gradients and of optimizers alike, and those whose results nobody keeps. `tilewright
explain` shows the kernels of a usual run. A graph of a GPU runs as usual and is one event.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.runtime.baseline import timed

from .. import recording
from .operations import work
from .profiler_util import EventList, FunctionEvent

__all__ = [
    "EventList",
    "FunctionEvent",
    "emit_itt",
    "emit_nvtx",
    "profile",
    "record_function",
]


def _name(node: Node | None) -> str:
    """The name of a node's operator in PyTorch, with its namespace."""
    if node is None:
        return "tilewright::compiled_plan"
    name = node.op.aten or node.op.name
    if name.startswith("matmul"):
        ranks = [len(o.shape) for o in node.operands[:2]]
        name = "bmm" if min(ranks) > 2 else "mv" if ranks == [2, 1] else "mm"
    elif name == "linear":
        name = "addmm" if len(node.operands) > 2 else "mm"
    return f"aten::{name}"


_running: list[profile] = []


def _tell(node: Node | None, begin: float, end: float) -> None:
    for each in _running:
        if each._is_collecting:
            each._ran(node, begin, end)


def _watch() -> None:
    """Have ops timed if a profile collects now."""
    timed.watch(_tell if any(p._is_collecting for p in _running) else None)


def is_collecting() -> bool:
    """Whether a profile collects now."""
    return timed.tell is not None


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
            if each._is_collecting:
                each._add_block(self.name, start, time.perf_counter())


class profile:
    """Collects the times of ops, and of the blocks of `record_function`.

    record_shapes: whether events have the shapes of operands. with_stack: whether they have the
    line that recorded them. with_flops: whether they have the operations of products.
    profile_memory: whether tables have the bytes of results. Other options choose among PyTorch's
    collectors, of which there is this one.
    """

    function_events: EventList

    def __init__(
        self,
        enabled: bool = True,
        *,
        record_shapes: bool = False,
        with_flops: bool = False,
        profile_memory: bool = False,
        with_stack: bool = False,
        **options: Any,
    ):
        self.enabled = enabled
        self.record_shapes, self.with_flops = record_shapes, with_flops
        self.profile_memory, self.with_stack = profile_memory, with_stack
        self._forget()
        self._start = 0.0

    def _forget(self) -> None:
        self.function_events = EventList(profile_memory=self.profile_memory)

    @property
    def _is_collecting(self) -> bool:
        return self.enabled

    def _ran(self, node: Node | None, begin: float, end: float) -> None:
        event = self._event(_name(node), begin, end)
        event.self_cpu_time_total = event.cpu_time_total
        if node is not None:
            if self.record_shapes:
                event.input_shapes = [list(o.shape) for o in node.operands]
            if self.with_stack:
                event.stack = ["{}({})".format(*node.loc)]
            if self.with_flops:
                event.flops = sum(work(node).values())
            if node.op.kind is not Kind.MOVEMENT:
                size = math.prod(node.shape) * node.dtype.itemsize
                event.self_cpu_memory_usage = event.cpu_memory_usage = size
        self._insert(event)

    def _add_block(self, name: str, start: float, end: float) -> None:
        event = self._event(name, start, end)
        event.is_user_annotation = True
        for inner in reversed(self.function_events):  # those in it have ended before
            if inner.start < event.start:
                break
            if inner.cpu_parent is None and inner.thread == event.thread:
                inner.cpu_parent = event
                event.cpu_children.insert(0, inner)
                event.cpu_memory_usage += inner.cpu_memory_usage
        inside = sum(e.cpu_time_total for e in event.cpu_children)
        event.self_cpu_time_total = event.cpu_time_total - inside
        self._insert(event)

    def _event(self, name: str, start: float, end: float) -> FunctionEvent:
        event = FunctionEvent(name, (start - self._start) * 1e6, (end - start) * 1e6)
        event.thread, event.id = threading.get_ident(), len(self.function_events)
        return event

    def _insert(self, event: FunctionEvent) -> None:
        bisect.insort(self.function_events, event, key=lambda e: e.start)

    def __enter__(self) -> profile:
        recording.end_step()
        self._start = time.perf_counter()
        if self.enabled:
            _running.append(self)
        _watch()
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            recording.end_step()
        finally:
            if self in _running:
                _running.remove(self)
            _watch()

    @property
    def self_cpu_time_total(self) -> float:
        """The time of all events, in microseconds."""
        return self.function_events.self_cpu_time_total

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
    ) -> EventList:
        return self.events().key_averages(group_by_input_shape, group_by_stack_n)

    def events(self) -> EventList:
        return self.function_events

    def table(self, **options: Any) -> str:
        return self.events().table(**options)

    def export_chrome_trace(self, path: str) -> None:
        self.events().export_chrome_trace(path)

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        if not self.with_stack:
            raise AssertionError("export_stacks() requires with_stack=True")
        self.events().export_stacks(path, metric)

    def total_average(self) -> FunctionEvent:
        return self.events().total_average()


def _profiler_enabled() -> bool:
    """Whether events are collected now."""
    return bool(_running)


@contextlib.contextmanager
def emit_nvtx(enabled: bool = True, record_shapes: bool = False) -> Iterator[None]:
    """Calls are recorded, not launched one by one: none is marked."""
    yield


emit_itt = emit_nvtx
