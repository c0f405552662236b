"""Copies between the host and a device through pinned memory, so that the host needn't wait."""

from __future__ import annotations

import ctypes
from collections import deque

import numpy as np

from .context import Context, Event
from .pinned import is_pinned

RING = 16 << 20
"""Bytes of the pinned ring buffer that copies to a device go through."""
STAGED = RING // 16
"""The least bytes that a copy to pageable memory takes through a pinned buffer."""
_PIECE = RING // 4
_ALIGNMENT = 256
_MOST = 256  # copies under way


class Upload:
    """Copies to a device, in the order of its work.

    `copy` returns when the data is in the ring, so the caller may change its source then. A copy
    waits until its part of the ring is free, which limits how far the host can run ahead. Pinned
    arrays are copied directly. A reference keeps them until the copy is done, and referenced memory
    is not written to in place.
    """

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._memory = 0
        # Places keep counting up. Modulo the ring's size they are offsets.
        self._next = 0
        self._under_way: deque[tuple[int, Event]] = deque()  # (first place, its end)
        self._held: deque[tuple[np.ndarray, Event]] = deque()  # pinned arrays, likewise

    def copy(self, array: np.ndarray, pointer: int) -> None:
        """Copy the elements of a C-contiguous array to `pointer` on the device."""
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
        """The address of `count` free bytes in the ring, without a break."""
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
    """Copy device memory at `pointer` to a C-contiguous array, as work of the stream."""
    context.use()
    if array.nbytes:
        context.driver.cuMemcpyDtoHAsync_v2(
            array.ctypes.data, pointer, array.nbytes, context.stream
        )


class Download:
    """Copies to pageable host memory, which a GPU doesn't write to by itself. The driver's own copy
    moves such memory in turns with the GPU. Here the GPU fills one piece of a pinned buffer while
    the host empties another one."""

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._idle: deque[int] = deque()  # buffers of RING bytes: one for each thread at a time

    def copy(self, pointer: int, array: np.ndarray) -> None:
        """Copy device memory at `pointer` to a C-contiguous array, and wait for it."""
        size = array.nbytes
        if size < STAGED or is_pinned(array):
            enqueue_download(self.context, pointer, array)
            self.driver.cuStreamSynchronize(self.context.stream)
            return
        self.context.use()
        try:
            memory = self._idle.popleft()
        except IndexError:
            memory = self.driver.handle("cuMemHostAlloc", RING, 0)
        target, under_way = array.ctypes.data, deque[tuple[int, int, int, Event]]()
        for start in range(0, size, _PIECE):
            if len(under_way) == RING // _PIECE:
                _take(*under_way.popleft())
            count, place = min(_PIECE, size - start), memory + start % RING
            self.context.use()
            self.driver.cuMemcpyDtoHAsync_v2(place, pointer + start, count, self.context.stream)
            under_way.append((target + start, place, count, self.context.event().record()))
        while under_way:
            _take(*under_way.popleft())
        self._idle.append(memory)


def _take(target: int, place: int, count: int, end: Event) -> None:
    """Copy a piece that has arrived in pinned memory."""
    end.synchronize()
    ctypes.memmove(target, place, count)
