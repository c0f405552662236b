"""Copies between the host and a device, by way of pinned memory, so that the host needn't wait."""

from __future__ import annotations

import ctypes
from collections import deque

import numpy as np

from .context import Context, Event
from .pinned import is_pinned

RING = 16 << 20
"""Bytes of pinned memory that copies to a device go through."""
_PIECE = RING // 4
_ALIGNMENT = 256
_MOST = 256  # copies under way


class Upload:
    """Copies to a device, in the order of its work.

    What is copied is in the ring when `copy` returns, so its source may be changed then. A copy
    waits for its part of the ring to be free again: the host can't be further ahead than that.
    What is pinned is copied from where it is, and held until that is done: memory that somebody
    refers to is not written to in place.
    """

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._memory = 0
        # Places count on, round after round; that of a copy is taken modulo the ring's size.
        self._next = 0
        self._under_way: deque[tuple[int, Event]] = deque()  # (where it begins, its end), by age
        self._held: deque[tuple[np.ndarray, Event]] = deque()  # pinned arrays, likewise

    def copy(self, array: np.ndarray, pointer: int) -> None:
        """The elements of a C-contiguous array to `pointer` on the device."""
        source, size = array.ctypes.data, array.nbytes
        self.context.use()
        while self._held and self._held[0][1].query():
            self._held.popleft()
        if size and is_pinned(array):
            self.driver.cuMemcpyHtoDAsync_v2(pointer, source, size, self.context.stream)
            self._held.append((array, self.context.event().record()))
            return
        for start in range(0, size, _PIECE):
            count = min(_PIECE, size - start)
            at = self._room(count)
            place = self._memory + at % RING
            ctypes.memmove(place, source + start, count)
            self.driver.cuMemcpyHtoDAsync_v2(pointer + start, place, count, self.context.stream)
            self._under_way.append((at, self.context.event().record()))

    def _room(self, count: int) -> int:
        """Where `count` bytes that follow each other are free."""
        if not self._memory:
            self._memory = self.driver.handle("cuMemHostAlloc", RING, 0)
        begin = self._next
        if begin % RING + count > RING:
            begin += RING - begin % RING
        end = self._next = begin + -(-count // _ALIGNMENT) * _ALIGNMENT
        waiting = self._under_way
        while waiting and (end - waiting[0][0] > RING or len(waiting) == _MOST):
            waiting.popleft()[1].synchronize()
        return begin


def enqueue_download(context: Context, pointer: int, array: np.ndarray) -> None:
    """What lies at `pointer` on the device into a C-contiguous array, as work of the stream."""
    context.use()
    if array.nbytes:
        context.driver.cuMemcpyDtoHAsync_v2(
            array.ctypes.data, pointer, array.nbytes, context.stream
        )


def download(context: Context, pointer: int, array: np.ndarray) -> None:
    """What lies at `pointer` on the device into a C-contiguous array; waits for it."""
    enqueue_download(context, pointer, array)
    context.driver.cuStreamSynchronize(context.stream)
