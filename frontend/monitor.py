"""torch.monitor: events that a program logs, statistics over windows of time, and handlers."""

from __future__ import annotations

import enum
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

__all__ = [
    "STAT_EVENT",
    "Aggregation",
    "Event",
    "EventHandlerHandle",
    "Stat",
    "TensorboardEventHandler",
    "data_value_t",
    "log_event",
    "register_event_handler",
    "unregister_event_handler",
]

STAT_EVENT = "torch.monitor.Stat"
"""The name of the events that a Stat logs."""
data_value_t = str | float | int | bool


class Aggregation(enum.Enum):
    """What a Stat makes of the numbers of a window."""

    VALUE, MEAN, COUNT, SUM, MAX, MIN = range(1, 7)


VALUE, MEAN, COUNT, SUM, MAX, MIN = Aggregation

_AGGREGATES: dict[Aggregation, Callable[[Sequence[float]], float]] = {
    VALUE: lambda seen: seen[-1] if seen else 0.0,
    MEAN: lambda seen: sum(seen) / len(seen) if seen else 0.0,
    COUNT: lambda seen: float(len(seen)),
    SUM: lambda seen: sum(seen, 0.0),
    MAX: lambda seen: max(seen, default=0.0),
    MIN: lambda seen: min(seen, default=0.0),
}


@dataclass
class Event:
    """Something to log: a name that says its kind, a time, and values by name."""

    name: str
    timestamp: datetime
    data: dict[str, data_value_t] = field(default_factory=dict)


class EventHandlerHandle:
    """A registered handler. Only `register_event_handler` makes one."""

    def __init__(self, handler: Callable[[Event], Any]):
        self._handler = handler


_handlers: list[EventHandlerHandle] = []


def register_event_handler(callback: Callable[[Event], Any]) -> EventHandlerHandle:
    """Call a function with each event from now on."""
    handle = EventHandlerHandle(callback)
    _handlers.append(handle)
    return handle


def unregister_event_handler(handler: EventHandlerHandle) -> None:
    """Let a handler receive no more events."""
    if handler in _handlers:
        _handlers.remove(handler)


def log_event(event: Event) -> None:
    """Give an event to all handlers."""
    for handle in list(_handlers):
        handle._handler(event)


class Stat:
    """Statistics of numbers over windows of time, each logged as an event when its window closes.

    max_samples: numbers beyond that many in a window are left out; 0 for no limit.
    """

    def __init__(
        self,
        name: str,
        aggregations: Sequence[Aggregation],
        window_size: timedelta,
        max_samples: int = 2**63 - 1,
    ):
        self.name = name
        self._aggregations = tuple(aggregations)
        self._width = window_size.total_seconds()
        self._most = max_samples
        self._seen: list[float] = []
        self._begun = time.monotonic() if self._width else 0.0
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many numbers the current window has."""
        with self._lock:
            closed = self._close_if_over()
        _log(closed)
        return len(self._seen)

    def add(self, v: float) -> None:
        """Add a number to the current window."""
        with self._lock:
            closed = self._close_if_over()
            if len(self._seen) < self._most:
                self._seen.append(v)
        _log(closed)

    def get(self) -> dict[Aggregation, float]:
        """The statistics of the current window."""
        with self._lock:
            return {each: _AGGREGATES[each](self._seen) for each in self._aggregations}

    def _close_if_over(self) -> Event | None:
        if time.monotonic() - self._begun < self._width:
            return None
        return self._close()

    def _close(self) -> Event | None:
        seen, self._seen, self._begun = self._seen, [], time.monotonic()
        if not seen:
            return None
        data: dict[str, data_value_t] = {
            f"{self.name}.{each.name.lower()}": _AGGREGATES[each](seen)
            for each in self._aggregations
        }
        return Event(STAT_EVENT, datetime.now(), data)

    def __del__(self) -> None:
        _log(self._close())


def _log(event: Event | None) -> None:
    if event is not None:
        log_event(event)


class TensorboardEventHandler:
    """Writes the statistics of each Stat as scalars."""

    def __init__(self, writer: Any):
        self._writer = writer

    def __call__(self, event: Event) -> None:
        if event.name == STAT_EVENT:
            values: Mapping[str, Any] = event.data
            for name, value in values.items():
                self._writer.add_scalar(name, value, walltime=event.timestamp.timestamp())
