"""Pinned host memory: arrays that a GPU copies from by itself, while the host goes on."""

from __future__ import annotations

import ctypes
import functools
import math
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType

from .context import Context

_PORTABLE = 1  # CU_MEMHOSTALLOC_PORTABLE: pinned for all GPUs


class Block:
    """Bytes of pinned memory, a ctypes array. They can be had again when nobody refers to it.

    An array that is made of it refers to it, and so, unlike with a block that is an array, the
    views of that array refer to the array: a buffer of which a part is being copied is known by its
    count of references.
    """

    free: deque[int]

    def __del__(self) -> None:
        # Nothing more here: this may be run by any thread, amid any call of the driver.
        self.free.append(ctypes.addressof(self))  # type: ignore[arg-type]


@functools.cache
def _block_of(size: int) -> Any:
    return type("Block", (Block, ctypes.c_ubyte * size), {})


class Pinned:
    """Where pinned memory comes from. Pinning costs much, so it is kept: by powers of two."""

    def __init__(self, context: Context):
        self.context = context
        self._free: dict[int, deque[int]] = {}

    def empty(self, shape: Sequence[int], dtype: DType) -> np.ndarray:
        """A new array in pinned memory, its contents unspecified."""
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
    """Whether an array is in memory that was handed out here."""
    base: object = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, Block)
