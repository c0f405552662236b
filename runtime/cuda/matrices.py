"""Matrices as tensor maps, by which hardware (TMA) copies tiles of them to shared memory.

A map is 128 bytes that the driver encodes on the host: address, sizes, and how a tile lies in
shared memory, which the compiler chose. A kernel takes it by value, as one of its parameters.
"""

from __future__ import annotations

import ctypes

from ..offline import TensorMap
from .driver import Driver

SIZE = ALIGNMENT = 128  # bytes; the driver asks for an alignment of 64
_RANK = 2
_L2_128B = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_NONE = 0  # no interleaving; zeros beyond the ends

_SMALL, _REPAIRED, _FAULT = 128 << 10, 13010, 1 << 21
"""Drivers up to this version set a bit in the second word of maps by which the hardware may read
beyond matrices of fewer bytes whose rows lie apart or overlap; CUTLASS (since 4.3.4) and Triton
clear it."""


def encode(
    driver: Driver, how: TensorMap, pointer: int, rows: int, columns: int, stride: int
) -> bytes:
    """The map of a matrix at `pointer`, with `stride` elements from row to row."""
    memory = (ctypes.c_ubyte * (SIZE + ALIGNMENT))()
    skipped = -ctypes.addressof(memory) % ALIGNMENT
    start = ctypes.addressof(memory) + skipped
    # Of numbers along the dimensions the innermost one comes first.
    driver.cuTensorMapEncodeTiled(
        start,
        how.element,
        _RANK,
        pointer,
        (ctypes.c_uint64 * _RANK)(columns, rows),
        (ctypes.c_uint64 * (_RANK - 1))(stride * how.size),
        (ctypes.c_uint32 * _RANK)(*reversed(how.box)),
        (ctypes.c_uint32 * _RANK)(1, 1),
        _NONE,
        how.swizzle,
        _L2_128B,
        _NONE,
    )
    last = ((rows - 1) * stride + columns - 1) * how.size
    if last + 1 < _SMALL and driver.number("cuDriverGetVersion") <= _REPAIRED:
        words = (ctypes.c_uint64 * (SIZE // 8)).from_address(start)
        words[1] &= ~_FAULT
    return bytes(memory[skipped : skipped + SIZE])
