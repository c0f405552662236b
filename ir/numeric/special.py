"""NumPy forms of functions that NumPy lacks or defines with other edge cases than PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import FLOAT8, bfloat16, complex32, float8_e4m3fn
from .error_function import erf, erfc, erfinv
from .gamma_function import digamma, lgamma, zeta
from .incomplete_gamma import igamma, igammac
from .orthogonal import (
    chebyshev_t,
    chebyshev_u,
    chebyshev_v,
    chebyshev_w,
    hermite_h,
    hermite_he,
    laguerre,
    legendre,
)

__all__ = [
    "bitcast",
    "cast",
    "chebyshev_t",
    "chebyshev_u",
    "chebyshev_v",
    "chebyshev_w",
    "digamma",
    "digit",
    "erf",
    "erfc",
    "erfinv",
    "floor_divide",
    "fmod",
    "gcd",
    "hermite_h",
    "hermite_he",
    "igamma",
    "igammac",
    "laguerre",
    "legendre",
    "imag",
    "lgamma",
    "make_complex",
    "pow",
    "real",
    "reciprocal",
    "remainder",
    "rsqrt",
    "sigmoid",
    "sign",
    "zeta",
]


# Functions with `out` write there, as ufuncs do; it may be x itself.


def rsqrt(x: Any, out: Any = None) -> Any:
    """1 / sqrt(x)."""
    out = np.empty_like(x) if out is None else out
    return np.divide(1, np.sqrt(x, out=out), out=out)


def reciprocal(x: Any, out: Any = None) -> Any:
    """1 / x."""
    return np.divide(1, x, out=np.empty_like(x) if out is None else out)


def sign(x: Any) -> Any:
    """-1, 0 or 1; 0 for NaN, as in PyTorch."""
    x = np.asarray(x)
    return (x > 0).astype(x.dtype) - (x < 0).astype(x.dtype)


def sigmoid(x: Any, out: Any = None) -> Any:
    """1 / (1 + exp(-x)), without overflow: exp(-inf) is 0 and exp(inf) is inf."""
    out = np.empty_like(x) if out is None else out
    with np.errstate(over="ignore"):
        np.exp(np.negative(x, out=out), out=out)
        np.add(out, 1, out=out)
        return np.divide(1, out, out=out)


def cast(x: Any, dtype: Any) -> Any:
    """A cast with PyTorch's rules: floats to integers by truncation, and to float8 as below."""
    x, dtype = np.asarray(x), np.dtype(dtype)
    if x.dtype == dtype:
        return x.astype(dtype)
    if x.dtype == complex32.np:
        x = make_complex(x["real"].astype(np.float32), x["imag"].astype(np.float32))
    if dtype == complex32.np:
        out = np.empty(x.shape, dtype)
        with np.errstate(over="ignore"):
            out["real"], out["imag"] = np.real(x), np.imag(x)
        return out
    with np.errstate(invalid="ignore", over="ignore"):
        if dtype in _FLOAT8 and x.dtype != dtype:
            return _float8(x.astype(np.float32), dtype)
        if x.dtype.kind == "c" and dtype.kind not in "cb":
            x = x.real  # as PyTorch, which drops the imaginary part
        if x.dtype == np.float64 and dtype == np.float16:
            x = x.astype(np.float32)  # as PyTorch, which rounds twice
        return x.astype(dtype)


def digit(x: Any, place: int) -> Any:
    """The digit at a place of float32 `x`, which is the sum of three bfloat16: the nearest one that
    is finite, that of the rest, and what is left. Of infinity and NaN the last two are 0."""
    x = np.asarray(x)
    with np.errstate(invalid="ignore", over="ignore"):
        first = x.astype(bfloat16.np).astype(np.float32)
        down = (x.view(np.int32) & -65536).view(np.float32)
        first = np.where(np.isinf(first), down, first)
        if place == 0:
            return first
        rest = x - first
        second = rest.astype(bfloat16.np).astype(np.float32)
        out = second if place == 1 else rest - second
    return np.where(np.isfinite(x), out, np.float32(0))


_FLOAT8 = frozenset(d.np for d in FLOAT8)


def _float8(x: Any, dtype: Any) -> Any:
    """A cast to float8. float8_e4m3fn has no infinity: numbers that are too large become its
    largest one. Its NaN has all bits set."""
    out = np.asarray(np.clip(x, -448, 448) if dtype == float8_e4m3fn.np else x).astype(dtype)
    bits = out.view(np.uint8)
    np.bitwise_or(bits, 0x7F, out=bits, where=np.isnan(x))
    return out


def make_complex(x: Any, y: Any) -> Any:
    """x + iy, also where a part is infinite or NaN."""
    out = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x, 1j))
    out.real, out.imag = x, y
    return out


def real(x: Any) -> Any:
    """The real parts, in memory of their own."""
    return np.array(np.real(x))


def imag(x: Any) -> Any:
    """The imaginary parts, in memory of their own."""
    return np.array(np.imag(x))


def bitcast(x: Any, dtype: Any) -> Any:
    return np.asarray(x).view(dtype)


def pow(a: Any, b: Any) -> Any:
    """a ** b; integers wrap, and negative integer exponents give 0 unless |a| is 1."""
    a, b = np.asarray(a), np.asarray(b)
    if a.dtype.kind == "c":
        return _complex_pow(a, b)
    if a.dtype.kind not in "iu":
        return np.power(a, b)
    positive = np.power(a, np.maximum(b, 0))
    if a.dtype.kind == "u":
        return positive
    unit = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0))
    return np.where(b < 0, unit, positive).astype(a.dtype)


def _complex_pow(a: Any, b: Any) -> Any:
    """a ** b for complex numbers: 1 for b = 0; NumPy's power has NaN where a is 0."""
    with np.errstate(all="ignore"):
        out = np.power(a, b)
        return np.where(
            (b == 0), a.dtype.type(1), np.where((a == 0) & (b.real > 0), a.dtype.type(0), out)
        )


def _no_zero(b: Any) -> None:
    if b.dtype.kind in "iu" and (b == 0).any():
        raise RuntimeError("ZeroDivisionError: integer division by zero")


def gcd(a: Any, b: Any) -> Any:
    """The greatest common divisor, with the sign that Euclid's algorithm leaves where the least
    integer, which has no magnitude, is one of the two."""
    found = np.gcd(a, b)
    if found.dtype.kind != "i":
        return found
    least = np.iinfo(found.dtype).min
    odd = (np.asarray(a) == least) | (np.asarray(b) == least)
    if not odd.any():
        return found
    with np.errstate(over="ignore"):
        x, y = (np.abs(np.broadcast_to(v, odd.shape)[odd]) for v in (a, b))
    while y.any():
        x, y = np.where(y == 0, x, y), np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y)))
    found = np.array(found)
    found[odd] = x
    return found


def floor_divide(a: Any, b: Any) -> Any:
    b = np.asarray(b)
    _no_zero(b)
    return np.floor_divide(a, b)


def remainder(a: Any, b: Any) -> Any:
    """a - b * floor(a / b): the sign of b, or of `a` where it is zero."""
    b = np.asarray(b)
    _no_zero(b)
    rest = np.remainder(a, b)
    if rest.dtype.kind in "iub":
        return rest
    return np.where(rest == 0, np.copysign(rest, a), rest)


def fmod(a: Any, b: Any) -> Any:
    """a - b * trunc(a / b): the sign of a."""
    b = np.asarray(b)
    _no_zero(b)
    return np.fmod(a, b)
