"""The order of a device's work: streams run side by side, and wait where they share memory.

Work in one stream runs in order. A stream waits for another one before it reads or overwrites
memory that the other wrote, or reuses memory that the other used. It waits whether or not the
program says so, and for nothing else. With one stream there is nothing to account for.

Work is counted in *spells*: periods during which one stream is the current one. A spell ends with
an event that other streams may wait for. A user's event also ends a spell, so that nobody waits for
more work than the program asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .context import Context, Event


_NONE: dict[int, int] = {}


class Mark(NamedTuple):
    """The work before an event: that of `stream` up to a spell, and the work which that had waited
    for. seen: the last such spell of each other stream."""

    stream: int
    spell: int
    seen: dict[int, int]


@dataclass
class Uses:
    """The uses of a block of memory. home: the stream that it was handed out in. written: (stream,
    spell) of the last write. last: the last spell of each stream that used it since."""

    home: int
    last: dict[int, int]
    written: tuple[int, int]


class Order:
    """The streams of a device, and which waits for which.

    several: whether there has ever been another stream than the default one. spell: the number of
        the current spell.
    """

    def __init__(self, context: Context):
        self.context = context
        self.several = False
        self.spell = 0
        self._alone = 0  # the last spell of the default stream before there were others
        self._uses: dict[int, Uses] = {}  # by block's address; no entry: used by the default stream
        self._ends: dict[int, deque[Event]] = {}  # by stream, of spells that may be unfinished
        self._done: dict[int, int] = {}  # the last spell of each stream known to be done
        self._seen: dict[int, dict[int, int]] = {}  # by stream: spells it waits for

    # -- streams

    def switch(self, stream: int) -> None:
        """Give further work to another stream."""
        here = self.context.stream
        ends = self._ends.setdefault(here, deque())
        while ends and ends[0].query():
            self._done[here] = ends.popleft().spell
        ends.append(self.record(self.context.event(), here))
        if not self.several:
            self.several, self._alone = True, ends[-1].spell
        self.context.stream = stream
        # Work from before there were several streams needs no further account.
        self.wait(stream, 0, self._alone)

    def record(self, event: Event, stream: int) -> Event:
        """Place an event after all work in a stream so far. Later work belongs to a new spell, so
        that nobody who waits for the event waits for more."""
        event.record(stream)
        event.mark = Mark(stream, self.spell, self._seen.get(stream, _NONE).copy())
        if stream == self.context.stream:
            self.spell += 1
        return event

    def learn(self, waiter: int, mark: Mark) -> None:
        """Note that a stream waits for an event."""
        seen = self._seen.setdefault(waiter, {})
        for stream, spell in (*mark.seen.items(), (mark.stream, mark.spell)):
            seen[stream] = max(spell, seen.get(stream, -1))

    def wait(self, waiter: int, stream: int, spell: int) -> None:
        """Make further work in `waiter` wait for the work of `stream` up to a spell."""
        if self._is_unseen(waiter, stream, spell):
            ends = self._ends.get(stream, ())
            end = next((e for e in ends if e.spell >= spell), None)
            if end is None:  # the spell isn't over: `stream` is the current stream
                end = self.context.event().record(stream)
            end.delay(self.context, waiter)

    def _is_unseen(self, waiter: int, stream: int, spell: int) -> bool:
        return (
            waiter != stream
            and self._done.get(stream, -1) < spell
            and self._seen.get(waiter, {}).get(stream, -1) < spell
        )

    # -- memory, by the address of its block

    def _of(self, address: int) -> Uses:
        found = self._uses.get(address)
        if found is None:
            found = self._uses[address] = Uses(0, {0: self._alone}, (0, self._alone))
        return found

    def read(self, address: int) -> None:
        """Prepare the current stream to read a block."""
        uses, here = self._of(address), self.context.stream
        self.wait(here, *uses.written)
        uses.last[here] = self.spell

    def write(self, address: int) -> None:
        """Prepare the current stream to write to a block that nobody else may use meanwhile."""
        uses, here = self._of(address), self.context.stream
        for stream, spell in uses.last.items():
            self.wait(here, stream, spell)
        uses.last, uses.written = {here: self.spell}, (here, self.spell)

    def use(self, address: int) -> None:
        """Note that the current stream uses a block that others may use at the same time."""
        self._of(address).last[self.context.stream] = self.spell

    def begin(self, address: int) -> None:
        """Note that the driver handed out a block in the current stream."""
        here = self.context.stream
        self._uses[address] = Uses(here, {here: self.spell}, (here, self.spell))

    def home(self, address: int) -> int:
        """The stream that a block was handed out in."""
        found = self._uses.get(address)
        return 0 if found is None else found.home

    def is_lent(self, address: int) -> bool:
        """Whether a block's own stream would have to wait for another one before reusing it."""
        found = self._uses.get(address)
        return found is not None and any(
            self._is_unseen(found.home, *each) for each in found.last.items()
        )

    def end(self, address: int) -> int:
        """Prepare to give a block back to the driver. Returns the stream for that, which waits for
        all users of the block."""
        uses = self._uses.pop(address, None)
        if uses is None:
            return 0
        for stream, spell in uses.last.items():
            self.wait(uses.home, stream, spell)
        return uses.home
