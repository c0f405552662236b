"""Numbers that tensors are filled with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from ..recording import Handle
from .arguments import as_handle


def _signed(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


_FLOAT = float(np.finfo(np.float32).max)
_BFLOAT = (2 - 2**-7) * 2.0**127

_RANGES = {
    dtypes.uint8: ("uint8_t", 0, 2**8 - 1),
    dtypes.uint16: ("uint16_t", 0, 2**16 - 1),
    dtypes.uint32: ("uint32_t", 0, 2**32 - 1),
    dtypes.uint64: ("uint64_t", 0, 2**64 - 1),
    dtypes.int8: ("int8_t", *_signed(8)),
    dtypes.int16: ("int16_t", *_signed(16)),
    dtypes.int32: ("int", *_signed(32)),
    dtypes.int64: ("int64_t", *_signed(64)),
    dtypes.float16: ("c10::Half", -65504, 65504),
    dtypes.bfloat16: ("c10::BFloat16", -_BFLOAT, _BFLOAT),
    dtypes.float32: ("float", -_FLOAT, _FLOAT),
    dtypes.float64: ("double", -math.inf, math.inf),
}
"""PyTorch's name of a dtype, and the least and the largest number of it. Types of 8 bits for floats
are left out: they saturate."""


def fitting(value: Any, dtype: DType) -> Any:
    """A number as one that `dtype` holds, up to rounding; other values as they are.

    A complex number becomes real where `dtype` is. A whole number that is negative counts down from
    the end of an unsigned dtype. RuntimeError for an imaginary part, for NaN and infinity among
    integers, and for a number that is out of the range of `dtype`.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, complex) and not dtype.is_complex:
        if dtype is dtypes.bool_:
            return value != 0
        if value.imag:
            raise _overflow(dtype)
        value = value.real
    if isinstance(value, (int, float)) and not fits(value, dtype):
        raise _overflow(dtype)
    return value


def fits(value: int | float, dtype: DType) -> bool:
    """Whether `dtype` has numbers as far from 0 as `value`; NaN and infinity are floats."""
    known = _RANGES.get(dtype)
    if known is None:
        return True
    _, low, high = known
    if dtype.is_floating_point and not math.isfinite(value):
        return True
    if not low and isinstance(value, int):
        low = -high
    return bool(low <= value <= high)


def _overflow(dtype: DType) -> RuntimeError:
    name = _RANGES[dtype][0] if dtype in _RANGES else str(dtype)
    return RuntimeError(
        f"value cannot be converted to type {name} without overflow{at_user_line()}"
    )


def filling(value: Any, like: Any) -> Any:
    """A number that a tensor like `like` is filled with, as a 0-d tensor of its dtype (an argument
    that is a tensor already is returned, unless it is complex and `like` is real)."""
    if isinstance(value, Handle):
        if not value.dtype.is_complex or like.dtype.is_complex or value.dim():
            return value
        value = value.item()
    return as_handle(fitting(value, like.dtype), like)
