"""Circular functions and their inverses. Those of two arguments and large arguments go by way of
float64.

Coefficients: tools/fit_math.py.
"""

from __future__ import annotations

import math

from .expression import Expr, fma, function, polynomial, rarely, where, wide
from .library import library

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

# The same for float32, tan(r) = r + r y P(y), atan for |z| <= 1, and asin(z) = z + z y P(y) for
# z^2 <= 1 / 2.
_SIN32 = (
    2.7249430185299884e-06,
    -0.0001984008291000507,
    0.008333331867623304,
    -0.16666666663837051,
)
_COS32 = (
    -2.7300545545861007e-07,
    2.4800597184466e-05,
    -0.0013888887666102256,
    0.04166666666430598,
)
_TAN32 = (
    0.0038498938178448626,
    0.0011739301391048272,
    0.009969283460722869,
    0.021619090754397212,
    0.053994723628871547,
    0.1333322976345126,
    0.33333333987972164,
)
_ATAN32 = (
    0.0014886919393047597,
    -0.009144629760592396,
    0.026305001110062377,
    -0.04896051402709067,
    0.07031914250029966,
    -0.08931826777381315,
    0.11088261628735159,
    -0.1428400379473353,
    0.19999949321141888,
    -0.3333333308107325,
)
_ASIN32 = (
    0.12755473319085808,
    -0.17573577175384458,
    0.1432709870001493,
    -0.038472487065172284,
    0.029778351238303916,
    0.02062195944001695,
    0.030521241059581684,
    0.04463729636002934,
    0.07500008523030867,
    0.1666666664531074,
)

# pi / 2 in pieces of float32, each with what the ones before it lack.
_HALF_PI = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)

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


def _near32(x: Expr) -> tuple[Expr, Expr]:
    """r and n with x = r + n pi / 2, as `_reduced`, in float32."""
    n = (x * (2 / math.pi)).round()
    r = x
    for piece in _HALF_PI:
        r = fma(n, -piece, r)
    quadrant = (n + 1.5 * 2.0**23).bits()
    # Up to here n has so few bits that the pieces make up for the digits that cancel.
    r, quadrant = rarely(x.abs() > 2.0**12, (r, quadrant), lambda: _reduced32(x))
    return r, quadrant


def _sin_cos32(x: Expr) -> tuple[Expr, Expr, Expr]:
    """As `_sin_cos`, in float32."""
    r, quadrant = _near32(x)
    y = r * r
    sin = fma(polynomial(y, _SIN32) * y, r, r)
    cos = fma(polynomial(y, _COS32) * y, y, fma(y, -0.5, 1.0))
    return sin, cos, quadrant


def _reduced32(x: Expr) -> tuple[Expr, Expr]:
    r, quadrant = _reduced(x.to("fpext", "double"))
    return r.to("fptrunc", "float"), quadrant.to("trunc", "i32")


# sin(r) = r + r y P(y), cos(r) = 1 - y / 2 + y^2 P(y) for |r| <= pi / 4: Taylor's series.
_SIN64 = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8, 0, -1)]
_COS64 = [(-1) ** k / math.factorial(2 * k) for k in range(8, 1, -1)]

# pi / 2 in pieces of float64, each with what the ones before it lack.
_HALF_PI64 = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591833e-33)


def _sin_cos64(x: Expr) -> tuple[Expr, Expr, Expr]:
    """sin and cos of the reduced argument in float64, and the quadrant. The reduced argument has a
    tail, which counts where it is small itself."""
    n = (x * (2 / math.pi)).round()
    first, second, third = _HALF_PI64
    head = fma(n, -first, x)  # exact
    product = n * second
    r = head - product
    lost = fma(n, second, -product)
    tail = fma(n, -third, ((head - r) - product) - lost)
    y = r * r
    half = y * 0.5
    sin = r + fma(y * r, polynomial(y, _SIN64), tail * (1.0 - half))
    one = 1.0 - half
    cos = one + (((1.0 - one) - half) + fma(y * y, polynomial(y, _COS64), -(r * tail)))
    return sin, cos, (n + 1.5 * 2.0**52).bits()


def _beyond64(name: str, x: Expr, usual: Expr) -> Expr:
    """`usual`, or the C library's result for an argument of 2^30 or more."""
    (out,) = rarely(
        ~(x.abs() < 2.0**30), (usual,), lambda: (Expr(x.code, library(x.code, name, [x.ref])),)
    )
    return out


@function("sin", "double")
def sin64(x: Expr) -> Expr:
    """1 ulp of float64."""
    s, c, quadrant = _sin_cos64(x)
    out = _signed(where((quadrant & 1).equals(0), s, c), quadrant)
    return _beyond64("sin", x, where(x.equals(0.0), x, out))


@function("cos", "double")
def cos64(x: Expr) -> Expr:
    """1 ulp of float64."""
    s, c, quadrant = _sin_cos64(x)
    out = _signed(where((quadrant & 1).equals(0), c, s), quadrant + 1)
    return _beyond64("cos", x, out)


def _signed32(value: Expr, quadrant: Expr) -> Expr:
    return (value.bits() ^ quadrant.shift_right(1).shift_left(31)).bits()


@function("sin")
def sin(x: Expr) -> Expr:
    """1.6 ulp."""
    s, c, quadrant = _sin_cos32(x)
    out = _signed32(where((quadrant & 1).equals(0), s, c), quadrant)
    return where(x.equals(0.0), x, out)


@function("cos")
def cos(x: Expr) -> Expr:
    """1.6 ulp."""
    s, c, quadrant = _sin_cos32(x)
    return _signed32(where((quadrant & 1).equals(0), c, s), quadrant + 1)


@function("tan")
def tan(x: Expr) -> Expr:
    """2.5 ulp."""
    r, quadrant = _near32(x)
    y = r * r
    tangent = fma(polynomial(y, _TAN32) * y, r, r)
    out = where((quadrant & 1).equals(0), tangent, -1.0 / tangent)
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


def _from_half_pi(x: Expr) -> Expr:
    """pi / 2 - x."""
    return _HALF_PI[0] - (x - _HALF_PI[1])


@function("atan")
def atan(x: Expr) -> Expr:
    """1.5 ulp."""
    size = x.abs()
    steep = size > 1.0
    z = where(steep, 1.0 / size, size)
    y = z * z
    out = fma(polynomial(y, _ATAN32) * y, z, z)
    return where(steep, _from_half_pi(out), out).copysign(x)


def _asin_parts(x: Expr) -> tuple[Expr, Expr]:
    """Whether |x| is large, and asin of |x|, or of sqrt((1 - |x|) / 2) if it is."""
    size = x.abs()
    large = size > 0.70710678  # so that what is taken from pi / 2 is no more than what remains
    y = where(large, fma(size, -0.5, 0.5), size * size)
    z = where(large, y.sqrt(), size)
    return large, fma(polynomial(y, _ASIN32) * y, z, z)


@function("asin")
def asin(x: Expr) -> Expr:
    """1.5 ulp."""
    large, out = _asin_parts(x)
    return where(large, _from_half_pi(out * 2.0), out).copysign(x)


@function("acos")
def acos(x: Expr) -> Expr:
    """1.5 ulp."""
    large, out = _asin_parts(x)
    below = x < 0.0
    out = where(large, out * 2.0, out)
    near = _from_half_pi(where(below, -out, out))
    far = where(below, 2 * _HALF_PI[0] - (out - 2 * _HALF_PI[1]), out)
    return where(large, far, near)


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
