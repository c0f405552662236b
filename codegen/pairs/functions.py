"""Functions of complex numbers, by real functions of their parts.

They have C's branch cuts, signed zeros included, and stay clear of overflow and cancellation in
between. Most of the formulas are from W. Kahan, "Branch Cuts for Complex Elementary Functions, or
Much Ado About Nothing's Sign Bit" (1987).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir import ops
from tilewright.ir.dtype import float64
from tilewright.ir.node import Node
from tilewright.ir.ops.unary import full_like, zeros_like

from . import arithmetic
from .arithmetic import (
    Pair,
    angle,
    conj,
    infinite,
    is_zero,
    modulus,
    mul,
    neg,
    over_i,
    plus,
    reciprocal,
    scaled,
    times_i,
)


def _is_zero(x: Node) -> Node:
    return ops.eq(x, zeros_like(x))


def _both(*conditions: Node) -> Node:
    found, *rest = conditions
    for each in rest:
        found = ops.bitwise_and(found, each)
    return found


def _endless(x: Node) -> Node:
    """Whether a number is infinite or NaN."""
    return ops.bitwise_not(ops.isfinite(x))


def _like(x: Node, value: float) -> Node:
    return full_like(x, value)


# ---- exponentials ----------------------------------------------------------------------------


def exp(z: Pair) -> Pair:
    """exp(x) (cos y + i sin y). Where exp(x) would overflow, a factor is kept back."""
    x, y = z
    bound, back = (709.0, 30.0) if x.dtype is float64 else (88.0, 10.0)
    huge = _both(x > bound, ops.isfinite(x))
    size = ops.exp(ops.where(huge, x - back, x))
    rest = ops.where(huge, _like(x, math.exp(back)), _like(x, 1))
    real, imag = size * ops.cos(y) * rest, size * ops.sin(y) * rest
    imag = ops.where(_is_zero(y), y, imag)
    # Beside an infinite x no direction is needed for the size.
    turning = _both(_endless(y), ops.isinf(x))
    gone = _both(turning, x < 0)
    real = ops.where(turning, size, real)
    return real, ops.where(gone, ops.copysign(zeros_like(y), y), imag)


def exp2(z: Pair) -> Pair:
    return exp(scaled(z, math.log(2)))


def expm1(z: Pair) -> Pair:
    """exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2."""
    x, y = z
    half = ops.sin(y * 0.5)
    return ops.expm1(x) * ops.cos(y) - half * half * 2, ops.exp(x) * ops.sin(y)


def sigmoid(z: Pair) -> Pair:
    return reciprocal(plus(exp(neg(z)), 1))


# ---- logarithms ------------------------------------------------------------------------------


def _log_modulus(z: Pair) -> Node:
    """log|z| = log(h) + log(1 + (l/h)^2) / 2 for the larger part h and the smaller one l. Near 1
    that would cancel: log(1 + (h - 1)(h + 1) + l^2) / 2."""
    x, y = ops.abs(z[0]), ops.abs(z[1])
    high, low = ops.maximum(x, y), ops.minimum(x, y)
    one = full_like(high, 1)
    near = ops.bitwise_and(high > 0.7, high < 1.5)
    plain = ops.bitwise_and(high > 0, ops.isfinite(high))
    ratio = ops.where(plain, low, zeros_like(low)) / ops.where(plain, high, one)
    rest = ops.where(near, (high - 1) * (high + 1) + low * low, ratio * ratio)
    found = ops.log1p(rest) * 0.5 + ops.where(near, zeros_like(high), ops.log(high))
    return ops.where(infinite(z), full_like(high, math.inf), found)


def log(z: Pair) -> Pair:
    return _log_modulus(z), angle(z)


def log2(z: Pair) -> Pair:
    return scaled(log(z), 1 / math.log(2))


def log10(z: Pair) -> Pair:
    return scaled(log(z), 1 / math.log(10))


def log1p(z: Pair) -> Pair:
    x, y = z
    far = log(plus(z, 1))
    small = _both(ops.abs(x) < 0.5, ops.abs(y) < 0.5)
    # A real number keeps the sign of its zero.
    size = ops.log1p(ops.where(_is_zero(y), x, x * (x + 2) + y * y))
    size = ops.where(_is_zero(y), size, size * 0.5)
    return ops.where(small, size, far[0]), far[1]


# ---- roots and powers ------------------------------------------------------------------------


def sqrt(z: Pair) -> Pair:
    """The root of half of |z| + |x| is one part, up to its sign; y over twice of it is the other.
    Both are scaled where |z| would overflow, or lose digits among subnormal numbers."""
    x, y = z
    size = ops.maximum(ops.abs(x), ops.abs(y))
    one = full_like(x, 1)
    tiny = float(2 ** (54 if x.dtype is float64 else 24))
    limit = arithmetic.largest(x)
    huge, small = size >= limit / 4, size < tiny / limit
    before = ops.where(huge, one * 0.0625, ops.where(small, one * (tiny * tiny), one))
    after = ops.where(huge, one * 4, ops.where(small, one / tiny, one))
    a, b = x * before, y * before
    root = ops.sqrt((modulus((a, b)) + ops.abs(a)) * 0.5)
    zero = _is_zero(root)
    other = ops.where(zero, b, b / ops.where(zero, one, root * 2))
    right = x >= 0
    real = ops.where(right, root, ops.abs(other)) * after
    imag = ops.where(right, other, ops.copysign(root, y)) * after
    # An infinite imaginary part wins; else an infinite real one has a part of zero beside it.
    none, endless = ops.where(ops.isnan(y), y, zeros_like(y)), full_like(x, math.inf)
    ahead, behind = _both(ops.isinf(x), right), _both(ops.isinf(x), x < 0)
    imag = ops.where(
        ahead, ops.copysign(none, y), ops.where(behind, ops.copysign(endless, y), imag)
    )
    real = ops.where(ahead, endless, ops.where(behind, none, real))
    up = ops.isinf(y)
    return ops.where(up, endless, real), ops.where(up, y, imag)


def rsqrt(z: Pair) -> Pair:
    return reciprocal(sqrt(z))


def pow(a: Pair, b: Pair) -> Pair:
    """exp(b log a); a power of zero is zero, and one with the exponent zero is one."""
    one, zero = full_like(a[0], 1), zeros_like(a[0])
    found = exp(mul(b, log(a)))
    nothing = ops.bitwise_and(is_zero(a), b[0] > 0)
    found = arithmetic.where(nothing, (zero, zero), found)
    return arithmetic.where(is_zero(b), (one, zero), found)


# ---- trigonometric and hyperbolic functions --------------------------------------------------


def sinh(z: Pair) -> Pair:
    x, y = z
    turning = _both(_endless(y), ops.bitwise_or(_is_zero(x), ops.isinf(x)))
    return (
        ops.where(turning, x, ops.sinh(x) * ops.cos(y)),
        ops.where(_is_zero(y), y, ops.cosh(x) * ops.sin(y)),
    )


def cosh(z: Pair) -> Pair:
    x, y = z
    high = ops.cosh(x)
    side = ops.copysign(_like(x, 1), x)
    imag = ops.where(_is_zero(y), y * side, ops.sinh(x) * ops.sin(y))
    return (
        ops.where(_both(_endless(y), ops.isinf(x)), high, high * ops.cos(y)),
        ops.where(_both(_endless(y), _is_zero(x)), zeros_like(x), imag),
    )


def tanh(z: Pair) -> Pair:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)^2 + cos(y)^2), whose divisor is a sum of squares;
    beyond 20 it is a sign and 4 sin y cos y exp(-2|x|)."""
    x, y = z
    far, turning = ops.abs(x) > 20, _endless(y)
    near = ops.where(far, zeros_like(x), x)
    s, c = ops.sinh(near), ops.cos(y)
    turn = ops.sin(y) * c
    under = s * s + c * c
    real = ops.where(_is_zero(y), ops.tanh(near), s * ops.cosh(near) / under)
    # At zero and at infinity no direction is needed.
    real = ops.where(_is_zero(x), x, ops.where(far, ops.copysign(_like(x, 1), x), real))
    real = ops.where(_both(turning, far, ops.isfinite(x)), c, real)
    flat = turn * (ops.exp(ops.abs(x) * -2) * 4)
    flat = ops.where(_both(turning, ops.isinf(x)), ops.copysign(zeros_like(y), y), flat)
    return real, ops.where(_is_zero(y), y, ops.where(far, flat, turn / under))


def _of_i(function: Callable[[Pair], Pair]) -> Callable[[Pair], Pair]:
    """f(iz) / i: sin from sinh, tan from tanh, asin from asinh and back."""
    return lambda z: over_i(function(times_i(z)))


sin, tan = _of_i(sinh), _of_i(tanh)


def cos(z: Pair) -> Pair:
    return cosh(times_i(z))


# ---- their inverses --------------------------------------------------------------------------


def _around_one(z: Pair) -> tuple[Pair, Pair]:
    """The roots of 1 - z and 1 + z."""
    x, y = z
    return sqrt((1 - x, -y)), sqrt((x + 1, y))


def asin(z: Pair) -> Pair:
    x, y = z
    below, above = _around_one(z)
    endless = infinite(z)
    real = ops.atan2(x, ops.where(endless, ops.abs(y), mul(below, above)[0]))
    imag = ops.asinh(mul(conj(below), above)[1])
    imag = ops.where(endless, ops.copysign(_like(y, math.inf), y), imag)
    return ops.where(_both(_is_zero(x), ops.isnan(y)), x, real), imag


def acos(z: Pair) -> Pair:
    x, y = z
    below, above = _around_one(z)
    endless = infinite(z)
    real = ops.atan2(ops.where(endless, ops.abs(y), below[0]), ops.where(endless, x, above[0]))
    real = ops.where(endless, real, real * 2)
    imag = ops.asinh(mul(conj(above), below)[1])
    imag = ops.where(endless, ops.copysign(_like(y, math.inf), -y), imag)
    level = _both(_is_zero(x), ops.isnan(y))
    return ops.where(level, _like(x, math.pi / 2), real), imag


def acosh(z: Pair) -> Pair:
    x, y = z
    below, above = sqrt(plus(z, -1)), sqrt(plus(z, 1))
    endless = infinite(z)
    real = ops.asinh(mul(conj(below), above)[0])
    imag = ops.atan2(ops.where(endless, y, below[1]), ops.where(endless, x, above[0]))
    imag = ops.where(endless, imag, imag * 2)
    level = _both(_is_zero(x), ops.isnan(y))
    return (
        ops.where(endless, _like(x, math.inf), real),
        ops.where(level, _like(y, math.pi / 2), imag),
    )


asinh = _of_i(asin)


def atanh(z: Pair) -> Pair:
    """(log1p(4x / ((1 - x)^2 + y^2)) + 2i atan2(2y, (1 - x)(1 + x) - y^2)) / 4. Far away it is 1/z
    beside a quarter turn; near 1, at a distance d, its real part is log(2/d) / 2."""
    x, y = z
    reach = float(2 ** (500 if x.dtype is float64 else 60))
    endless = infinite(z)
    far = ops.bitwise_or(endless, ops.maximum(ops.abs(x), ops.abs(y)) > reach)
    zero, half = zeros_like(x), _like(x, 0.5)
    a, b = ops.where(far, zero, ops.abs(x)), ops.where(far, zero, y)
    distance = modulus((1 - a, b))
    close = distance < 1 / reach
    over = ops.where(close, _like(x, 2), a * 4 / distance) / distance
    size = ops.log1p(over) * ops.where(close, half, half * 0.5)
    size = ops.where(far, ops.abs(reciprocal(z)[0]), size)
    size = ops.where(ops.bitwise_or(endless, _is_zero(x)), zero, size)
    turn = ops.atan2(b * 2, (1 - a) * (a + 1) - b * b) * 0.5
    quarter = ops.where(ops.isnan(y), y, ops.copysign(_like(y, math.pi / 2), y))
    return ops.copysign(size, x), ops.where(far, quarter, turn)


atan = _of_i(atanh)
