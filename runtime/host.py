"""Devices whose buffers are NumPy arrays in host memory."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import DType, from_numpy

from .device import Arrival, Device, Launch

if TYPE_CHECKING:
    from tilewright.codegen.lower.host import Routine

_RECYCLED_BYTES = 1 << 16
"""Bytes from which buffers are recycled: fresh pages cost more than writing to them."""

_KEEP = 8
"""Recycled buffers of one size, at most."""

_LINE = 64
"""Bytes of a cache line and of a vector. One that lies across two lines is read and written at
half the speed."""


def _aligned(size: int) -> tuple[np.ndarray, int]:
    """Memory, and the place in it where `size` bytes begin at a cache line."""
    memory = np.empty(size + _LINE, dtype=np.uint8)
    return memory, -memory.ctypes.data % _LINE


def copy_of(array: np.ndarray) -> np.ndarray:
    """A C-contiguous copy; of a large array it begins at a cache line."""
    if array.nbytes < _RECYCLED_BYTES:
        return np.array(array, order="C", copy=True)
    out = np.ndarray(array.shape, array.dtype, *_aligned(array.nbytes))
    out[...] = array
    return out


def _keep_freed_memory() -> None:
    """Let the C library keep freed memory of up to 64 MB, as it does in every program that has once
    freed an array of 32 MB.

    glibc gives memory back when a larger chunk is free than the largest that was ever freed, twice.
    A program that makes and drops some arrays of a few 100 KB in each step would get its pages
    from the system again and again, which takes longer than writing to them.
    """
    np.empty((32 << 20) - (64 << 10), np.uint8)  # no page of it is ever touched


_keep_freed_memory()


class HostDevice(Device):
    """A buffer is a C-contiguous array."""

    def __init__(self) -> None:
        self._recycled: dict[int, list[tuple[np.ndarray, int]]] = {}
        # Targets of copies from a GPU, by id(). Holding them keeps their memory from being
        # recycled.
        self._arriving: dict[int, tuple[np.ndarray, Arrival]] = {}

    def empty(self, shape: Sequence[int], dtype: DType) -> np.ndarray:
        size = math.prod(shape) * dtype.itemsize
        if size < _RECYCLED_BYTES:
            return np.empty(tuple(shape), dtype=dtype.np)
        memory, start = self._memory(size)
        return np.ndarray(tuple(shape), dtype.np, memory, start)

    def maker(self, shape: Sequence[int], dtype: DType) -> Callable[[], np.ndarray]:
        if math.prod(shape) * dtype.itemsize < _RECYCLED_BYTES:
            return functools.partial(np.empty, tuple(shape), dtype.np)
        return super().maker(shape, dtype)

    def _memory(self, size: int) -> tuple[np.ndarray, int]:
        """As `_aligned`, in memory that nobody refers to any more if there is some."""
        pool = self._recycled.setdefault(size, [])
        for memory, start in pool:
            # A free one has three references: the pair, the loop variable and the argument.
            if getrefcount(memory) == 3:
                return memory, start
        fresh = _aligned(size)
        if len(pool) < _KEEP:
            pool.append(fresh)
        return fresh

    def recycles(self, memory: np.ndarray) -> bool:
        pool = self._recycled.get(memory.nbytes - _LINE, ())
        return any(memory is each for each, _ in pool)

    def trim(self) -> None:
        """Forget recycled memory."""
        self._recycled.clear()

    def arena(self, size: int) -> np.ndarray:
        memory, start = _aligned(size)
        return memory[start:]

    def view(self, arena: Any, offset: int, shape: Sequence[int], dtype: DType) -> np.ndarray:
        return np.ndarray(tuple(shape), dtype.np, arena, offset)

    def rows(
        self, buffer: np.ndarray, count: int, start: int = 0, stop: int | None = None
    ) -> list[np.ndarray]:
        return list(buffer.reshape(-1)[start:stop].reshape(count, -1))

    def from_numpy(self, array: np.ndarray) -> np.ndarray:
        dtype = from_numpy(array.dtype).np
        return copy_of(array) if array.dtype == dtype else array.astype(dtype, order="C")

    def call(self, routine: Routine) -> Launch:
        return routine

    def copied(self, buffer: Any, source: Device) -> np.ndarray:
        array = source.to_numpy(buffer)
        if array.nbytes < _RECYCLED_BYTES:
            return array.copy()
        out = np.ndarray(array.shape, array.dtype, *self._memory(array.nbytes))
        out[...] = array
        return out

    def to_numpy(self, buffer: np.ndarray) -> np.ndarray:
        if self.concurrent:
            self.meet([buffer], ())
        return buffer

    def fetched(self, buffer: Any, source: Device) -> np.ndarray:
        sent = source.sent(buffer)
        if sent is None:
            return self.copied(buffer, source)
        self.is_settled()
        self._arriving[id(sent[0])] = sent
        self.concurrent = True
        return sent[0]

    def is_settled(self) -> bool:
        """Whether nothing is on its way to the host's memory any more."""
        for key, (_, arrival) in list(self._arriving.items()):
            if arrival.done():
                del self._arriving[key]
        self.concurrent = bool(self._arriving)
        return not self.concurrent

    def meet(self, read: Sequence[Any], written: Sequence[Any]) -> None:
        for part in (*read, *written):
            while isinstance(part, np.ndarray):
                found = self._arriving.get(id(part))
                if found is not None:
                    found[1].wait()
                    del self._arriving[id(part)]
                part = part.base
        self.concurrent = bool(self._arriving)
