"""Streams and events of the driver without a GPU: pending work and its order (`fake_cuda.py`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fake_order import Clock, join

if TYPE_CHECKING:
    from fake_cuda import FakeCuda

PATIENCE = 4  # queries until a piece of work is done


@dataclass(eq=False)
class Stream:
    """A stream. handle: its number. clock: the work certain to be done before its next work."""

    fake: FakeCuda
    context: int
    handle: int
    todo: deque[Callable[[], None] | Point] = field(default_factory=deque)
    clock: Clock = field(default_factory=dict)
    questions: int = 0

    def give(self, name: str, do: Callable[[int], None]) -> None:
        """Add work to do later, as do(its place among all work)."""
        place = self.fake.races.given(self.handle, self.clock, name)
        self.todo.append(lambda: do(place))

    def run(self) -> None:
        while self.todo:
            self.step()

    def can_go_on(self) -> bool:
        return bool(self.todo) and not (isinstance(self.todo[0], Point) and not self.todo[0].done)

    def step(self) -> None:
        self.fake.serve_some()
        if self.todo and isinstance(self.todo[0], Point):
            self.todo[0].run()
        if self.can_go_on():  # check again: other streams may have run
            self.do()

    def do(self) -> None:
        found = self.todo.popleft()
        if not isinstance(found, Point):
            found()

    def ask(self) -> bool:
        """Whether all work is done. Every few queries do some work, so that a polling loop ends."""
        self.questions += 1
        if self.todo and self.questions % PATIENCE == 0:
            self.step()
        return not self.todo

    def awaits(self, point: Point) -> None:
        join(self.clock, point.clock)
        self.todo.append(point)


@dataclass
class Point:
    """A place in a stream where an event was recorded. The event happens there."""

    stream: Stream
    clock: Clock
    done: bool = False
    time: float = 0.0

    @classmethod
    def recorded(cls, stream: Stream) -> Point:
        made = cls(stream, dict(stream.clock))
        stream.todo.append(made.happen)
        return made

    def happen(self) -> None:
        self.stream.fake.time += 1.0
        self.done, self.time = True, self.stream.fake.time

    def run(self) -> None:
        while not self.done:
            self.stream.step()

    def ask(self) -> bool:
        return self.done or (self.stream.ask(), self.done)[1]


@dataclass
class Event:
    context: int
    timed: bool
    point: Point | None = None  # its last recording
