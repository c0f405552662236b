"""Pinned host memory: a GPU copies from it by itself while the host goes on."""

from __future__ import annotations

import ctypes
import functools
import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType

from .context import Context

_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for all GPUs


class Block:
    """Pinned memory as a ctypes array. It is free again when nobody refers to it.

    A block is no NumPy array, so an array over it stays the base of its views. The reference count
    of that array then shows whether a part of it is still being copied.
    """

    free: deque[int]

    def __del__(self, addressof: Callable[[Any], int] = ctypes.addressof) -> None:
        # No driver call here: any thread may run this, in the middle of any driver call. At the
        # end of the process the module's names are gone.
        self.free.append(addressof(self))


@functools.cache
def _block_of(size: int) -> Any:
    return type("Block", (Block, ctypes.c_ubyte * size), {})


class Pinned:
    """A pool of pinned memory. Pinning is expensive, so it keeps blocks, by powers of two."""

    def __init__(self, context: Context):
        self.context = context
        self._free: dict[int, deque[int]] = {}

    def empty(self, shape: Sequence[int], dtype: DType) -> np.ndarray:
        """A new array in pinned memory with unspecified contents."""
        size = math.prod(shape) * dtype.itemsize
        room = 1 << max(size - 1, 511).bit_length()
        free = self._free.setdefault(room, deque())
        if free:
            address = free.popleft()
        else:
            self.context.use()
            address = self.context.driver.handle("cuMemHostAlloc", room, _PORTABLE)
        block = _block_of(room).from_address(address)
        block.free = free
        return np.ndarray(tuple(shape), dtype.np, block)


def is_pinned(array: np.ndarray) -> bool:
    """Whether an array lies in memory of this pool."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Block)
