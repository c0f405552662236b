"""Tensor maps of matrices. Hardware (TMA) copies tiles to shared memory by them.

A map has 128 bytes, which the driver encodes on the host: address, sizes, and the layout in shared
memory that the compiler chose for a tile. A kernel takes it by value, as a parameter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..driver import Driver, Pointer
from ..offline import TensorMap

SIZE = ALIGNMENT = 128  # bytes; the driver asks for an alignment of 64
_RANK = 2
_L2_128B = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_NONE = 0  # no interleaving; zeros beyond the ends

_SMALL, _REPAIRED, _FAULT = 128 << 10, 13010, 1 << 21
"""(bytes of a small matrix, driver version, bit). Drivers up to this version set this bit in the
second word of a map. With it the hardware may read beyond the end of a smaller matrix whose rows
lie apart or overlap. CUTLASS (since 4.3.4) and Triton clear the bit."""


def _pointer(kind: Any, *numbers: int) -> Any:
    return ctypes.cast((kind * len(numbers))(*numbers), ctypes.POINTER(kind))


def encoder(
    driver: Driver, how: TensorMap, rows: int, columns: int, stride: int
) -> Callable[[int], bytes]:
    """A function of an address that returns the map of a matrix there, with `stride` elements from
    row to row."""
    memory = (ctypes.c_ubyte * (SIZE + ALIGNMENT))()
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % ALIGNMENT
    words = (ctypes.c_uint64 * (SIZE // 8)).from_address(start)
    # The arguments are C's already: ctypes would take microseconds to make them for each call.
    place = Pointer()
    arguments = (
        *(ctypes.c_void_p(start), ctypes.c_int(how.element), ctypes.c_uint(_RANK), place),
        # Sizes and strides are given from the innermost dimension outwards.
        _pointer(ctypes.c_uint64, columns, rows),
        _pointer(ctypes.c_uint64, stride * how.size),
        _pointer(ctypes.c_uint32, *reversed(how.box)),
        _pointer(ctypes.c_uint32, 1, 1),
        *(ctypes.c_int(each) for each in (_NONE, how.swizzle, _L2_128B, _NONE)),
    )
    last = ((rows - 1) * stride + columns - 1) * how.size
    repairs = last + 1 < _SMALL and driver.number("cuDriverGetVersion") <= _REPAIRED

    def encode(pointer: int, memory: Any = memory) -> bytes:  # `words` lie in `memory`
        place.value = pointer
        driver.cuTensorMapEncodeTiled(*arguments)
        if repairs:
            words[1] &= ~_FAULT
        return bytes(words)

    return encode
