"""Work beside a segment's launches: in a stream of its own, with events to and from it.

A collective is such work. It begins when the launches before it are done, and only those behind it
wait for it that use its memory. All wait by the end of the segment, so its memory is as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.op import Op

from ..device import Bound, Launch, Run
from .context import Event
from .graphs import Replay, replays
from .memory import Buffer

if TYPE_CHECKING:
    from tilewright.codegen.lower.host import Routine

    from .device import Cuda

Work = Callable[[Sequence[Buffer], int], None]
"""work(buffers, stream): enqueue work on buffers, those that it writes to first, in a CUstream. It
returns at once."""

WORK: dict[Op, Callable[[Routine], Work]] = {}
"""By op, what GPUs do for a routine beside their other work. A library of collectives enters its
own here."""


class Beside:
    """A launch of work in the device's stream for such work. The current stream waits for it."""

    is_beside = True
    waits = True  # another process takes part, so it isn't made again after an error

    def __init__(self, device: Cuda, work: Work):
        self.device, self.work = device, work

    def begin(self, buffers: Sequence[Buffer]) -> Event:
        """Start the work when all earlier launches are done; the event at its end."""
        context, stream = self.device.context, self.device.beside.handle
        context.event().record().delay(context, stream)
        self.work(buffers, stream)
        return context.event().record(stream)

    def __call__(self, buffers: Sequence[Buffer], scalars: Sequence[Any]) -> None:
        self.begin(buffers).delay(self.device.context, self.device.context.stream)


class Pending:
    """The work that a segment has begun and doesn't wait for yet. failed: whether a launch failed
    in this run; work is waited for at once then, as the last launch may not come."""

    def __init__(self, device: Cuda):
        self.device = device
        self.failed = False
        self._begun: list[tuple[list[Buffer], Event]] = []

    def add(self, buffers: Sequence[Buffer], end: Event) -> None:
        self._begun.append((list(buffers), end))
        if self.failed:
            self.finish()

    def meet(self, buffers: Sequence[Buffer]) -> None:
        """Let the current stream wait for work on memory of these buffers."""
        for place in reversed(range(len(self._begun))):
            if any(_overlap(a, b) for a in self._begun[place][0] for b in buffers):
                self._wait(place)
                return

    def finish(self) -> None:
        """Let the current stream wait for all work."""
        if self._begun:
            self._wait(len(self._begun) - 1)

    def _wait(self, place: int) -> None:
        """Wait for the end of a piece of work. What began before it has ended, too."""
        context = self.device.context
        self._begun[place][1].delay(context, context.stream)
        del self._begun[: place + 1]


def _overlap(a: Buffer, b: Buffer) -> bool:
    return a.pointer < b.pointer + b.nbytes and b.pointer < a.pointer + a.nbytes


class Ordered:
    """A launch of a segment that has work beside it. It waits for the work whose memory it uses."""

    waits = True

    def __init__(self, pending: Pending, launch: Launch, is_first: bool, is_last: bool):
        self.pending, self.launch = pending, launch
        self.is_first, self.is_last = is_first, is_last

    def __call__(self, buffers: Sequence[Any], scalars: Sequence[Any]) -> None:
        pending = self.pending
        if self.is_first:
            pending.finish()
            pending.failed = False
        try:
            if isinstance(self.launch, Beside):
                # Work before it is in the same stream.
                pending.add(buffers, self.launch.begin(buffers))
            else:
                pending.meet(buffers)
                self.launch(buffers, scalars)
        except BaseException:
            pending.failed = True
            pending.finish()
            raise
        if self.is_last:
            pending.finish()


def ordered(device: Cuda, launches: Sequence[Bound]) -> list[Bound]:
    """The launches of a segment, of which those behind work in another stream wait for it."""
    if not any(isinstance(launch, Beside) for launch, _, _ in launches):
        return list(launches)
    pending, last = Pending(device), len(launches) - 1
    return [
        (Ordered(pending, launch, place == 0, place == last), used, numbers)
        for place, (launch, used, numbers) in enumerate(launches)
    ]


class Piece:
    """A graph of launches between pieces of other work, as a run."""

    def __init__(self, launches: Sequence[Bound], replay: Replay):
        self.replay = replay
        orders = [launch for launch, _, _ in launches if isinstance(launch, Ordered)]
        self._first, self._last = orders[0], orders[-1]
        self._count = len(launches)
        self._slots = list(dict.fromkeys(s for _, used, _ in launches for s in used))

    def __call__(self, slots: list[Any], scalars: Sequence[Any]) -> int:
        pending = self._first.pending
        if self._first.is_first:
            pending.finish()
            pending.failed = False
        pending.meet([slots[s] for s in self._slots])
        made = self.replay(slots, scalars)
        if made < self._count:
            pending.failed = True
            pending.finish()
        elif self._last.is_last:
            pending.finish()
        return made


def runs(device: Cuda, launches: Sequence[Bound]) -> dict[int, tuple[Run, int]]:
    """Graphs of the launches between pieces of other work. Another one begins where launches first
    use what such a piece uses, so that those before it needn't wait."""
    out: dict[int, tuple[Run, int]] = {}
    begun: set[int] = set()
    start = 0
    for end in range(len(launches) + 1):
        launch, used, _ = launches[end] if end < len(launches) else (None, (), ())
        is_work = isinstance(launch, Ordered) and isinstance(launch.launch, Beside)
        if launch is not None and not is_work and begun.isdisjoint(used):
            continue
        inner = [(each.launch, *rest) for each, *rest in launches[start:end]]  # type: ignore[attr-defined]
        for place, (replay, count) in replays(device, inner).items():
            assert isinstance(replay, Replay)
            first = start + place
            out[first] = Piece(launches[first : first + count], replay), count
        begun = begun | set(used) if is_work else set()
        start = end + is_work
    return out
