"""The order of a device's work: streams run side by side, and wait for each other where they meet.

What goes to one stream is in order by itself. Where another stream reads or overwrites what it
wrote, or gets memory that it used, the other waits for it here, whether or not the program says so;
nothing else waits. As long as there is one stream there is nothing to keep account of.

Work is counted in *spells*: times in which one stream is the current one. A spell ends with an
event, for which other streams may wait; where the program records an event of its own, a new one
begins, so that nobody waits for more than was asked for.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .context import Context, Event


@dataclass(frozen=True)
class Mark:
    """What an event comes after: all that `stream` was given up to a spell, and what that had
    waited for, as the last spell of each other stream."""

    stream: int
    spell: int
    seen: dict[int, int]


@dataclass
class Uses:
    """Who used a block of memory. home: the stream that it was handed out in. last: the last spell
    of each stream since it was written; written: (stream, spell) of that."""

    home: int
    last: dict[int, int]
    written: tuple[int, int]


class Order:
    """The streams of a device, and who waits for whom.

    several: whether there has ever been another stream than the default one. spell: the number of
    the one that lasts.
    """

    def __init__(self, context: Context):
        self.context = context
        self.several = False
        self.spell = 0
        self._alone = 0  # the last spell of the default stream without others
        self._uses: dict[int, Uses] = {}  # by address of the block; none: by the default stream
        self._ends: dict[int, deque[Event]] = {}  # of the spells of a stream that may last
        self._done: dict[int, int] = {}  # the last spell of a stream that is known to be done
        self._seen: dict[int, dict[int, int]] = {}  # the last spell of others that a stream awaits

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
        # So nobody need keep account of what was there before.
        self.wait(stream, 0, self._alone)

    def record(self, event: Event, stream: int) -> Event:
        """Put an event behind all that was given to a stream. What comes next is of another spell,
        so that who waits for the event waits for no more."""
        event.record(stream)
        event.mark = Mark(stream, self.spell, dict(self._seen.get(stream, {})))
        if stream == self.context.stream:
            self.spell += 1
        return event

    def learn(self, waiter: int, mark: Mark) -> None:
        """A stream was told to wait for an event."""
        seen = self._seen.setdefault(waiter, {})
        for stream, spell in (*mark.seen.items(), (mark.stream, mark.spell)):
            seen[stream] = max(spell, seen.get(stream, -1))

    def wait(self, waiter: int, stream: int, spell: int) -> None:
        """Let what comes in `waiter` wait for what `stream` was given up to a spell."""
        if self._is_unseen(waiter, stream, spell):
            ends = self._ends.get(stream, ())
            end = next((e for e in ends if e.spell >= spell), None)
            if end is None:  # the spell isn't over: it is that of the current stream
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
        """The current stream is about to read a block."""
        uses, here = self._of(address), self.context.stream
        self.wait(here, *uses.written)
        uses.last[here] = self.spell

    def write(self, address: int) -> None:
        """The current stream is about to write to a block, and others mustn't use it meanwhile."""
        uses, here = self._of(address), self.context.stream
        for stream, spell in uses.last.items():
            self.wait(here, stream, spell)
        uses.last, uses.written = {here: self.spell}, (here, self.spell)

    def use(self, address: int) -> None:
        """The current stream uses a block that others may use at the same time."""
        self._of(address).last[self.context.stream] = self.spell

    def begin(self, address: int) -> None:
        """The driver handed out a block in the current stream."""
        here = self.context.stream
        self._uses[address] = Uses(here, {here: self.spell}, (here, self.spell))

    def home(self, address: int) -> int:
        """The stream that a block was handed out in."""
        found = self._uses.get(address)
        return 0 if found is None else found.home

    def is_lent(self, address: int) -> bool:
        """Whether the stream of a block would have to wait for another one to use it again."""
        found = self._uses.get(address)
        return found is not None and any(
            self._is_unseen(found.home, *each) for each in found.last.items()
        )

    def end(self, address: int) -> int:
        """A block goes back to the driver: in the stream this returns, which waits for all that
        used it."""
        uses = self._uses.pop(address, None)
        if uses is None:
            return 0
        for stream, spell in uses.last.items():
            self.wait(uses.home, stream, spell)
        return uses.home
