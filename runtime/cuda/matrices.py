"""Tensor maps of matrices and of boxes. Hardware (TMA) copies tiles to shared memory by them.

A map has 128 bytes, which the driver encodes on the host: address, sizes, and the layout in shared
memory that the compiler chose for a tile. A kernel takes it by value, as a parameter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from ..driver import Driver, Pointer
from ..offline import TensorMap

SIZE = ALIGNMENT = 128  # bytes; the driver asks for an alignment of 64
_L2_128B = 2  # CU_TENSOR_MAP_L2_PROMOTION_L2_128B
_NONE = 0  # no interleaving; zeros beyond the ends

_SMALL, _REPAIRED, _FAULT = 128 << 10, 13010, 1 << 21
"""(bytes of a small matrix, driver version, bit). Drivers up to this version set this bit in the
second word of a map. With it the hardware may read beyond the end of a smaller matrix whose rows
lie apart or overlap. CUTLASS (since 4.3.4) and Triton clear the bit."""


def _pointer(kind: Any, *numbers: int) -> Any:
    return ctypes.cast((kind * len(numbers))(*numbers), ctypes.POINTER(kind))


def encoder(
    driver: Driver, how: TensorMap, extents: Sequence[int], strides: Sequence[int]
) -> Callable[[int], bytes]:
    """A function of an address that returns the map of the memory there that has these `extents`,
    and so many elements between neighbours along each, the outermost one first."""
    memory = (ctypes.c_ubyte * (SIZE + ALIGNMENT))()
    start = ctypes.addressof(memory) + -ctypes.addressof(memory) % ALIGNMENT
    words = (ctypes.c_uint64 * (SIZE // 8)).from_address(start)
    # The arguments are C's already: ctypes would take microseconds to make them for each call.
    place = Pointer()
    arguments = (
        *(ctypes.c_void_p(start), ctypes.c_int(how.element), ctypes.c_uint(len(extents)), place),
        # Sizes and strides are given from the innermost dimension outwards.
        _pointer(ctypes.c_uint64, *reversed(extents)),
        _pointer(ctypes.c_uint64, *(n * how.size for n in reversed(strides[:-1]))),
        _pointer(ctypes.c_uint32, *reversed(how.box)),
        _pointer(ctypes.c_uint32, *(1 for _ in extents)),
        *(ctypes.c_int(each) for each in (_NONE, how.swizzle, _L2_128B, _NONE)),
    )
    last = sum((n - 1) * stride for n, stride in zip(extents, strides)) * how.size
    repairs = last + 1 < _SMALL and driver.number("cuDriverGetVersion") <= _REPAIRED

    def encode(pointer: int, memory: Any = memory) -> bytes:  # `words` lie in `memory`
        place.value = pointer
        driver.cuTensorMapEncodeTiled(*arguments)
        if repairs:
            words[1] &= ~_FAULT
        return bytes(words)

    return encode
