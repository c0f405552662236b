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
_GROUP = _PIECE // 16  # bytes of copies that one event ends
_ALIGNMENT = 256
_MOST = 256  # groups of copies under way


class Upload:
    """Copies to a device, in the order of its work.

    `copy` returns when the data is in the ring, so the caller may change its source then. A copy
    waits until its part of the ring is free, which limits how far the host can run ahead. Pinned
    arrays are copied directly. A reference keeps them until the copy is done, and referenced memory
    is not written to in place.
    """

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._to_device = self.driver.unchecked("cuMemcpyHtoDAsync_v2")
        self._memory = 0
        # Places keep counting up. Modulo the ring's size they are offsets.
        self._next = 0
        # Copies for which no event stands yet: their first place, and their stream. They are few
        # beside the ring, so nobody ever has to wait for these.
        self._open: tuple[int, int] | None = None
        self._under_way: deque[tuple[int, Event]] = deque()  # (first place, its end)
        self._held: deque[tuple[np.ndarray, Event]] = deque()  # pinned arrays, likewise

    def copy(self, array: np.ndarray, pointer: int) -> None:
        """Copy the elements of a C-contiguous array to `pointer` on the device."""
        source, size = array.ctypes.data, array.nbytes
        context, stream = self.context, self.context.stream
        context.use()
        while self._held and self._held[0][1].query():
            self._held.popleft()
        if size and is_pinned(array):
            self._enqueue(pointer, source, size, stream)
            self._held.append((array, context.event().record()))
            return
        if self._open is not None and self._open[1] != stream:
            self._close()
        for start in range(0, size, _PIECE):
            count = min(_PIECE, size - start)
            at = self._room(count)
            place = self._memory + at % RING
            ctypes.memmove(place, source + start, count)
            self._enqueue(pointer + start, place, count, stream)
            if self._open is None:
                self._open = at, stream
            if self._next - self._open[0] >= _GROUP:
                self._close()

    def _enqueue(self, pointer: int, source: int, size: int, stream: int) -> None:
        code = self._to_device(pointer, source, size, stream)
        if code:
            raise self.driver.failure("cuMemcpyHtoDAsync_v2", code)

    def _close(self) -> None:
        """Record the end of the copies that have none."""
        assert self._open is not None
        at, stream = self._open
        self._open = None
        self._under_way.append((at, self.context.event().record(stream)))

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


class Download:
    """Copies to the host.

    A GPU doesn't write to pageable memory by itself: the driver's own copy moves the data in turns
    with it. In large copies the GPU fills one piece of a pinned buffer here while the host empties
    another one.
    """

    def __init__(self, context: Context):
        self.context, self.driver = context, context.driver
        self._to_host = self.driver.unchecked("cuMemcpyDtoHAsync_v2")
        self._wait = self.driver.unchecked("cuStreamSynchronize")
        self._idle: deque[int] = deque()  # buffers of RING bytes: one for each thread at a time

    def enqueue(self, pointer: int, array: np.ndarray) -> None:
        """Copy device memory at `pointer` to a C-contiguous array, as work of the stream."""
        self.context.use()
        if array.nbytes:
            self._enqueue(array.ctypes.data, pointer, array.nbytes)

    def _enqueue(self, target: int, pointer: int, size: int) -> None:
        code = self._to_host(target, pointer, size, self.context.stream)
        if code:
            raise self.driver.failure("cuMemcpyDtoHAsync_v2", code)

    def copy(self, pointer: int, array: np.ndarray) -> None:
        """The same, and wait for it."""
        size = array.nbytes
        if size < STAGED or is_pinned(array):
            self.enqueue(pointer, array)
            code = self._wait(self.context.stream)
            if code:
                raise self.driver.failure("cuStreamSynchronize", code)
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
            self._enqueue(place, pointer + start, count)
            under_way.append((target + start, place, count, self.context.event().record()))
        while under_way:
            _take(*under_way.popleft())
        self._idle.append(memory)


def _take(target: int, place: int, count: int, end: Event) -> None:
    """Copy a piece that has arrived in pinned memory."""
    end.synchronize()
    ctypes.memmove(target, place, count)
