"""Copies between the host and a device, by way of pinned memory, so that the host needn't wait."""

from __future__ import annotations

import ctypes
from collections import deque

import numpy as np

from .context import Context, Event

RING = 16 << 20
"""Bytes of pinned memory that copies to a device go through."""
_PIECE = RING // 4
_ALIGNMENT = 256


class Upload:
    """Copies to a device, in the order of its work.

    What is copied is in the ring when `copy` returns, so its source may be changed then. A copy
    waits for its part of the ring to be free again: the host can't be further ahead than that.
    """

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._memory = 0
        self._next = 0
        self._flying: deque[tuple[int, int, Event]] = deque()  # (begin, end) of the ring

    def copy(self, array: np.ndarray, pointer: int) -> None:
        """The elements of a C-contiguous array to `pointer` on the device."""
        source, size = array.ctypes.data, array.nbytes
        self.context.use()
        for start in range(0, size, _PIECE):
            count = min(_PIECE, size - start)
            at = self._room(count)
            place = self._memory + at
            ctypes.memmove(place, source + start, count)
            self.driver.cuMemcpyHtoDAsync_v2(pointer + start, place, count, self.context.stream)
            event = Event(self.context, timing=False).record()
            self._flying.append((at, at + count, event))

    def _room(self, count: int) -> int:
        """Where `count` bytes of the ring are free."""
        if not self._memory:
            self._memory = self.driver.handle("cuMemHostAlloc", RING, 0)
        begin = self._next if self._next + count <= RING else 0
        end = -(-(begin + count) // _ALIGNMENT) * _ALIGNMENT
        # In flight are neighbours, from the oldest to the newest: those in the way are the oldest.
        while self._flying and self._in_the_way(begin, end):
            self._flying.popleft()[2].synchronize()
        self._next = end
        return begin

    def _in_the_way(self, begin: int, end: int) -> bool:
        return any(first < end and begin < last for first, last, _ in self._flying)


def download(context: Context, pointer: int, array: np.ndarray) -> None:
    """What lies at `pointer` on the device into a C-contiguous array; waits for it."""
    context.use()
    if array.nbytes:
        context.driver.cuMemcpyDtoHAsync_v2(
            array.ctypes.data, pointer, array.nbytes, context.stream
        )
    context.driver.cuStreamSynchronize(context.stream)
