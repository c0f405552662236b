"""The order of work on a fake GPU: finds unordered accesses to memory.

Every piece of work gets a vector clock when it is given to its stream. The clock tells how much
work of each other stream is certain to be done before it, also through waits of the host. Each byte
of device memory remembers its last writer, and its last reader in each stream. An access is a race
if an earlier conflicting access isn't certain to come before it, in whatever order the work is
really done (as in FastTrack, Flanagan and Freund 2009).
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Clock = dict[int, int]
"""Stream -> the number of its pieces of work that are certain to be done."""


def join(clock: Clock, other: Clock) -> None:
    for stream, count in other.items():
        clock[stream] = max(count, clock.get(stream, 0))


@dataclass
class Work:
    """A launch, a copy or anything else that a stream does."""

    name: str
    stream: int
    number: int
    before: Clock

    def follows(self, other: Work) -> bool:
        return self is other or self.before.get(other.stream, 0) >= other.number

    def __str__(self) -> str:
        return f"{self.name} (number {self.number} of stream {self.stream:#x})"


@dataclass
class Block:
    """An allocation. For each `grain` bytes it has the writer and the readers, as places in the
    list of all work."""

    start: int
    size: int
    grain: int = 1
    written: np.ndarray = field(init=False)
    read: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.grain = 1 if self.size <= 1 << 18 else 256
        self.written = self.nobody()

    def nobody(self) -> np.ndarray:
        return np.zeros(-(-self.size // self.grain), np.int32)


class Races:
    """The accesses to a device's memory. found: descriptions of races."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.work: list[Work] = [Work("nothing", -1, 0, {})]
        self.host: Clock = {}
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []

    def given(self, stream: int, clock: Clock, name: str) -> int:
        """The place of a new piece of work in a stream with this clock."""
        join(clock, self.host)
        clock[stream] = number = clock.get(stream, 0) + 1
        self.work.append(Work(name, stream, number, dict(clock)))
        return len(self.work) - 1

    def ordered(self, first: int, second: int) -> bool:
        a, b = self.work[first], self.work[second]
        return a.follows(b) or b.follows(a)

    # -- memory

    def allocated(self, start: int, size: int, place: int) -> None:
        self._blocks[start] = Block(start, size)
        self._starts = sorted(self._blocks)
        self.access(place, start, size, writes=True)

    def freed(self, start: int, place: int) -> None:
        block = self._blocks[start]
        self.access(place, start, block.size, writes=True)
        del self._blocks[start]
        self._starts.remove(start)

    def access(self, place: int, start: int, size: int, *, writes: bool) -> None:
        block = self._at(start)
        if size and block is not None:
            first, last = start - block.start, start - block.start + size - 1
            self._note(place, block, slice(first // block.grain, last // block.grain + 1), writes)

    def element_access(
        self, place: int, pointers: np.ndarray, mask: np.ndarray, width: int, *, writes: bool
    ) -> bool:
        """Note an access to elements at any addresses. False if one isn't in allocated memory."""
        left = np.unique(pointers[np.broadcast_to(mask, pointers.shape).astype(bool)])
        while left.size:
            block = self._at(int(left[0]))
            if block is None:
                return False
            here = left[left < block.start + block.size]
            offsets = (here - np.uint64(block.start)).astype(np.int64)
            if offsets[-1] + width > block.size:
                return False
            bytes_of = (offsets[:, None] + np.arange(width)).reshape(-1)
            self._note(place, block, np.unique(bytes_of // block.grain), writes)
            left = left[here.size :]
        return True

    def _at(self, address: int) -> Block | None:
        place = bisect_right(self._starts, address)
        block = self._blocks[self._starts[place - 1]] if place else None
        return block if block is not None and address < block.start + block.size else None

    def _note(self, place: int, block: Block, where: Any, writes: bool) -> None:
        work = self.work[place]
        self._compare(work, block, block.written[where], "written", writes)
        if not writes:
            own = block.read.get(work.stream)
            if own is None:
                own = block.read[work.stream] = block.nobody()
            own[where] = place
            return
        for stream, read in block.read.items():
            if stream != work.stream:
                self._compare(work, block, read[where], "read", writes)
        block.written[where] = place

    def _compare(
        self, work: Work, block: Block, places: np.ndarray, how: str, writes: bool
    ) -> None:
        for each in np.unique(places):
            if each and not work.follows(self.work[each]):
                self.found.append(
                    f"{work} {'writes' if writes else 'reads'} memory at {block.start:#x} that is "
                    f"{how} by {self.work[each]}: nothing orders them"
                )
