"""Circular functions and their inverses, for float32 by way of float64.

Coefficients: tools/fit_math.py.
"""

from __future__ import annotations

import math

from .expression import Expr, fma, polynomial, rarely, where, wide

NAN = math.nan

# sin(r) = r + r y P(y), cos(r) = 1 - y / 2 + y^2 P(y); y = r^2, |r| <= pi / 4
_SIN = (
    1.5917901824596877e-10,
    -2.5051128685155503e-08,
    2.7557316087378873e-06,
    -0.00019841269836729297,
    0.008333333333330929,
    -0.16666666666666666,
)
_COS = (
    2.070031610242444e-09,
    -2.7556366622943393e-07,
    2.4801585200827364e-05,
    -0.0013888888887266884,
    0.04166666666666466,
)
# atan(z) = z + z y P(y), y = z^2, |z| <= tan(pi / 8)
_ATAN = (
    -0.040429226651597004,
    0.07135182084685653,
    -0.09028958301807892,
    0.11107493108352956,
    -0.14285612438479525,
    0.19999998916343023,
    -0.3333333333143878,
)

# 2 / pi in pieces of 24 bits, the first worth 2^-24: enough for the largest float32.
_TWO_OVER_PI = (
    0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041,
)  # fmt: skip


def _reduced(x: Expr) -> tuple[Expr, Expr]:
    """r and n with x = r + n pi / 2, |r| <= pi / 4: n modulo 4, in the low bits of an integer."""
    n = (x * (2 / math.pi)).round()
    r = fma(n, -1.5707963267948966, x)
    r = fma(n, -6.123233995736766e-17, r)
    r, n = rarely(x.abs() > 2.0**30, (r, n), lambda: _reduced_far(x))
    return r, (n + 1.5 * 2.0**52).bits()


def _reduced_far(x: Expr) -> tuple[Expr, Expr]:
    """The same for a large float32 (Payne and Hanek). Its 24 bits times a piece of 2 / pi are exact
    in float64, and only the remainder of each product modulo 4 counts."""
    total: Expr | None = None
    for i, piece in reversed(list(enumerate(_TWO_OVER_PI))):
        product = x * (piece * 2.0 ** (-24 * (i + 1)))
        rest = product - (product * 0.25).round() * 4.0
        total = rest if total is None else total + rest
    assert total is not None
    total = total - (total * 0.25).round() * 4.0
    n = total.round()
    return (total - n) * (math.pi / 2), n


def _sin_cos(x: Expr) -> tuple[Expr, Expr, Expr]:
    """sin and cos of the reduced argument, and the quadrant."""
    r, quadrant = _reduced(x)
    y = r * r
    sin = fma(polynomial(y, _SIN) * y, r, r)
    cos = fma(polynomial(y, _COS) * y, y, fma(y, -0.5, 1.0))
    return sin, cos, quadrant


def _signed(value: Expr, quadrant: Expr) -> Expr:
    """`value` with its sign turned where bit 1 of the quadrant is set."""
    return (value.bits() ^ quadrant.shift_right(1).shift_left(63)).bits()


@wide("sin")
def sin(x: Expr) -> Expr:
    """0.51 ulp."""
    s, c, quadrant = _sin_cos(x)
    out = _signed(where((quadrant & 1).equals(0), s, c), quadrant)
    return where(x.equals(0.0), x, out)


@wide("cos")
def cos(x: Expr) -> Expr:
    """0.51 ulp."""
    s, c, quadrant = _sin_cos(x)
    return _signed(where((quadrant & 1).equals(0), c, s), quadrant + 1)


@wide("tan")
def tan(x: Expr) -> Expr:
    """0.51 ulp."""
    s, c, quadrant = _sin_cos(x)
    even = (quadrant & 1).equals(0)
    out = where(even, s, -c) / where(even, c, s)
    return where(x.equals(0.0), x, out)


def _atan2(y: Expr, x: Expr) -> Expr:
    """atan2, to 1e-11: the smaller size divided by the larger one, turned by pi / 4 if the quotient
    is above tan(pi / 8)."""
    a, b = y.abs(), x.abs()
    steep = a > b
    small, large = where(steep, b, a), where(steep, a, b)
    endless = large.equals(math.inf)
    small = where(endless, where(small.equals(math.inf), x.like(1.0), 0.0), small)
    large = where(endless, 1.0, large)
    turned = small > large * 0.41421356237309503
    above = where(turned, small - large, small)
    below = where(turned, small + large, large)
    z = above / where(below.equals(0.0), 1.0, below)
    y2 = z * z
    out = fma(polynomial(y2, _ATAN) * y2, z, z) + where(turned, x.like(math.pi / 4), 0.0)
    out = where(steep, math.pi / 2 - out, out)
    out = where(x.bits() < 0, math.pi - out, out)
    return where(x.isnan() | y.isnan(), NAN, out.copysign(y))


@wide("atan2", 2)
def atan2(y: Expr, x: Expr) -> Expr:
    """0.51 ulp."""
    return _atan2(y, x)


@wide("atan")
def atan(x: Expr) -> Expr:
    """0.51 ulp."""
    return _atan2(x, x.like(1.0))


@wide("asin")
def asin(x: Expr) -> Expr:
    """0.51 ulp."""
    return _atan2(x, ((1.0 - x) * (x + 1.0)).sqrt())


@wide("acos")
def acos(x: Expr) -> Expr:
    """0.51 ulp."""
    return _atan2(((1.0 - x) * (x + 1.0)).sqrt(), x)


@wide("fmod", 2)
def fmod(x: Expr, y: Expr) -> Expr:
    """Exact, because the quotient is exact below 2^53, up to one."""
    size, divisor = x.abs(), y.abs()
    ratio = size / divisor

    def slow() -> tuple[Expr]:
        return (Expr(x.code, x.code.binary("frem", size.ref, divisor.ref)),)

    q = ratio._call("trunc")
    r = fma(-q, divisor, size)
    r = where(r < 0.0, r + divisor, r)
    r = where(r >= divisor, r - divisor, r)
    (r,) = rarely((ratio > 2.0**50) & (divisor > 0.0), (r,), slow)
    r = where(divisor.equals(math.inf) & (size < math.inf), size, r)
    return r.copysign(x)
