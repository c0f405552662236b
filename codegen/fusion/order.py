"""The order of launches that needs least memory, among those that compute values before readers.

Of the launches that could be next, the one goes first that frees most memory beyond what it takes.
So a gradient is used up while it is there, whatever order the graph was built in. Freed bytes may
count more than taken ones, because a launch that is put off holds its operands for long. Each of
WEIGHTS gives one order; the one with the lowest peak is taken.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from tilewright.ir.node import Node

from ..ops import initial
from .partition import Group, Partition, makes_digits_again

Batch = list[Group]


WEIGHTS = (1, 8)
"""The weights of a freed byte, beside a byte that is taken."""
_LATEST = 1 << 62
"""The place in the queue of launches behind all others."""


def ordered(partition: Partition, batches: Sequence[Batch]) -> list[Batch]:
    """The batches, each after those that it depends on."""
    found = []
    for weight in WEIGHTS:
        scheduler = _Scheduler(partition, batches, weight)
        found.append((scheduler.run(), scheduler.peak))
    return min(found, key=lambda pair: pair[1])[0]


class _Scheduler:
    """One order, made greedily. peak: the most bytes of values in memory at once."""

    def __init__(self, partition: Partition, batches: Sequence[Batch], weight: int):
        self.partition = partition
        self.batches = batches
        self.weight = weight
        self.peak = 0
        # Digits are made again when nothing else can go on, in the order of their products.
        self.again = [any(map(makes_digits_again, batch)) for batch in batches]
        number = {g.index: i for i, batch in enumerate(batches) for g in batch}
        self.after: list[list[int]] = [[] for _ in batches]
        self.waiting: list[int] = []
        # The launches that still have to read a value, and what each launch would free.
        self.readers: dict[Node, set[int]] = {}
        self.gain: list[int] = []
        self.written: list[int] = []
        for i, batch in enumerate(batches):
            earlier = {number[g.index] for member in batch for g in partition.producers(member)}
            self.waiting.append(len(earlier))
            for j in earlier:
                self.after[j].append(i)
            outputs = [o for g in batch for o in g.outputs]
            # The memory that a scatter updates is made as late as possible.
            last = all(o.op is initial for o in outputs)
            self.written.append(sum(partition.memory[o] for o in outputs))
            self.gain.append(-self.written[-1] - (last << 60))
            for read in self._reads(batch):
                self.readers.setdefault(read, set()).add(i)
        for read, readers in self.readers.items():
            if len(readers) == 1:
                self._count_freed(read, readers)

    def run(self) -> list[Batch]:
        queue = [self._entry(i) for i, count in enumerate(self.waiting) if not count]
        heapq.heapify(queue)
        started: set[int] = set()
        out: list[Batch] = []
        live = 0
        while queue:
            gain, _, i = heapq.heappop(queue)
            if i in started or gain != self._entry(i)[0]:
                continue
            started.add(i)
            out.append(self.batches[i])
            live += self.written[i]
            self.peak = max(self.peak, live)
            for read in self._reads(self.batches[i]):
                readers = self.readers[read]
                readers.discard(i)
                if not readers and read not in self.partition.results:
                    live -= self.partition.memory[read]
                if len(readers) == 1:
                    last = self._count_freed(read, readers)
                    if not self.waiting[last]:
                        heapq.heappush(queue, self._entry(last))
            for later in self.after[i]:
                self.waiting[later] -= 1
                if not self.waiting[later]:
                    heapq.heappush(queue, self._entry(later))
        assert len(out) == len(self.batches), "kernels depend on each other in a cycle"
        return out

    def _entry(self, i: int) -> tuple[int, int, int]:
        return _LATEST if self.again[i] else -self.gain[i], self.batches[i][0].order, i

    def _count_freed(self, read: Node, readers: set[int]) -> int:
        """`read` dies with its last reader, unless it is a result of the graph."""
        (last,) = readers
        if read not in self.partition.results:
            self.gain[last] += self.partition.memory[read] * self.weight
        return last

    def _reads(self, batch: Batch) -> dict[Node, None]:
        """The values of other launches that `batch` reads."""
        group_of = self.partition.group_of
        return {read: None for group in batch for read in group.reads if read in group_of}
