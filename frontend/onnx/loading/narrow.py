"""Conversions to dtypes of few bits: integers of 2 and 4, floats of 4, 6 and 8."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation
from .api import f
from .values import NARROW, Narrow

FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def to_narrow(x: Any, dtype: np.dtype[Any], saturate: bool = True, rounding: str = "up") -> Narrow:
    """A tensor in a dtype without tensors, by the rules of ONNX's Cast.

    rounding: `up`, `down` or `nearest`, for powers of two (float8_e8m0fnu) alone.
    """
    if dtype.name.startswith(("int", "uint")):
        return Narrow(_wrapped(x, dtype), dtype)
    wide = x.to(dtypes.float32)
    if dtype.name == "float8_e8m0fnu":
        return Narrow(_power(wide, saturate, rounding), dtype)
    return Narrow(rounded(wide, dtype, saturate), dtype)


def limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    """The smallest and largest of an integer dtype of few bits."""
    info = ml_dtypes.iinfo(dtype)
    return int(info.min), int(info.max)


def _wrapped(x: Any, dtype: np.dtype[Any]) -> Any:
    """The low bits of an integer. A fraction is cut off."""
    low, high = limits(dtype)
    whole = x.to(dtypes.int64)
    return (f.remainder(whole - low, high - low + 1) + low).to(NARROW[dtype])


def rounded(x: Any, dtype: np.dtype[Any], saturate: bool) -> Any:
    """float32 numbers, rounded to those of a float of few bits: the nearest, ties to even."""
    info = ml_dtypes.finfo(dtype)
    _, exponent = f.frexp(x)  # |x| = m * 2 ** exponent, and 0.5 <= m < 1
    least = f.clamp(exponent - 1, min=int(info.minexp)) - int(info.nmant)
    unit = f.ldexp(creation.ones_like(x), least)
    near = f.round(x / unit) * unit
    most = float(info.max)
    signed = "fnuz" not in dtype.name  # those have one zero
    if not signed:
        near = f.where(near == 0, 0.0, near)
    if saturate or dtype.name.startswith(("float4", "float6")):
        near = f.clamp(near, -most, most)
        near = f.where(f.isinf(x), f.sign(x) * most, near)
    else:
        # Only e5m2 has infinities, and it has tensors.
        near = f.where((near.abs() > most) | f.isinf(x), float("nan"), near)
    if dtype.name.startswith(("float4", "float6")):  # they have no NaN
        return f.where(f.isnan(x), -0.0, near)
    return f.where(f.isnan(x), x, near)


def _power(x: Any, saturate: bool, rounding: str) -> Any:
    """The power of two for each number."""
    mantissa, exponent = f.frexp(x)
    edge = {"up": 0.5, "nearest": 0.75, "down": 1.0}[rounding]
    over = mantissa > edge if rounding == "up" else mantissa >= edge
    power = exponent - 1 + over.to(exponent.dtype)
    found = f.ldexp(creation.ones_like(x), f.clamp(power, -127, 127))
    outside = (power > 127) | (power < -127) | (x == 0)
    if saturate:
        found = f.where(x == 0, 2.0**-127, found)
        return f.where(f.isinf(x), 2.0**127, f.where(f.isnan(x), x, found))
    return f.where(outside | f.isinf(x) | f.isnan(x), float("nan"), found)


def to_float8(x: Any, dtype: Any, saturate: bool) -> Any:
    """A tensor as one of float8_e4m3fn or float8_e5m2, by the rules of ONNX's Cast."""
    wide = x.to(dtypes.float32)
    kind = dtype.np
    if saturate:
        near = rounded(wide, kind, True)
        return near.to(dtype)
    if dtype is dtypes.float8_e5m2:  # beyond the largest are the infinities
        return wide.to(dtype)
    return rounded(wide, kind, False).to(dtype)
