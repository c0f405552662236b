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


# ---- exponentials ----------------------------------------------------------------------------


def exp(z: Pair) -> Pair:
    x, y = z
    size = ops.exp(x)
    # exp(inf) sin(0) is 0, and exp(-inf) is 0 in any direction.
    gone = _is_zero(size)
    straight = _is_zero(y)
    return (
        ops.where(gone, zeros_like(x), ops.where(straight, size, size * ops.cos(y))),
        ops.where(straight, y, ops.where(gone, zeros_like(x), size * ops.sin(y))),
    )


def exp2(z: Pair) -> Pair:
    return exp(scaled(z, math.log(2)))


def expm1(z: Pair) -> Pair:
    """exp(x) cos(y) - 1 = expm1(x) cos(y) - 2 sin(y/2)^2."""
    x, y = z
    half = ops.sin(y * 0.5)
    straight = _is_zero(y)
    near = ops.expm1(x)
    real, imag = exp(z)
    small = ops.abs(x) < 1
    fine = near * ops.cos(y) - half * half * 2
    return ops.where(straight, near, ops.where(small, fine, real - 1)), imag


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
    small = ops.bitwise_and(ops.abs(x) < 0.5, ops.abs(y) < 0.5)
    return ops.where(small, ops.log1p(x * (x + 2) + y * y) * 0.5, far[0]), far[1]


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
    wide, endless = ops.isinf(x), full_like(x, math.inf)
    ahead = ops.bitwise_and(wide, right)
    # An infinite imaginary part wins; else an infinite real one has a part of zero beside it.
    imag = ops.where(ahead, ops.copysign(zeros_like(y), y) + (y - y), imag)
    behind = ops.bitwise_and(wide, x < 0)
    real = ops.where(behind, zeros_like(x) + (y - y), real)
    imag = ops.where(behind, ops.copysign(endless, y), imag)
    real = ops.where(ahead, endless, real)
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
    straight, level = _is_zero(y), _is_zero(x)
    return (
        ops.where(level, x, ops.where(straight, ops.sinh(x), ops.sinh(x) * ops.cos(y))),
        ops.where(straight, y, ops.cosh(x) * ops.sin(y)),
    )


def cosh(z: Pair) -> Pair:
    x, y = z
    straight, level = _is_zero(y), _is_zero(x)
    turn = ops.where(straight, y, ops.sin(y))
    return (
        ops.where(straight, ops.cosh(x), ops.cosh(x) * ops.cos(y)),
        ops.where(ops.bitwise_or(straight, level), x * turn, ops.sinh(x) * turn),
    )


def tanh(z: Pair) -> Pair:
    """(sinh x cosh x + i sin y cos y) / (sinh(x)^2 + cos(y)^2), whose divisor is a sum of squares;
    beyond 20 it is a sign and 4 sin y cos y exp(-2|x|)."""
    x, y = z
    far = ops.abs(x) > 20
    near = ops.where(far, zeros_like(x), x)
    s, c = ops.sinh(near), ops.cos(y)
    turn = ops.sin(y) * c
    under = s * s + c * c
    # The slope at infinity is zero in any direction.
    fall = ops.exp(ops.abs(x) * -2) * 4
    gone = ops.bitwise_and(_is_zero(fall), ops.bitwise_not(ops.isfinite(y)))
    flat = ops.where(gone, ops.copysign(zeros_like(y), y), turn * fall)
    straight = _is_zero(y)
    real = ops.where(far, ops.sign(x), s * ops.cosh(near) / under)
    real = ops.where(ops.bitwise_and(straight, ops.bitwise_not(far)), ops.tanh(x), real)
    return real, ops.where(straight, y, ops.where(far, flat, turn / under))


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
    below, above = _around_one(z)
    across = mul(below, above)[0]
    return ops.atan2(z[0], across), ops.asinh(mul(conj(below), above)[1])


def acos(z: Pair) -> Pair:
    below, above = _around_one(z)
    return ops.atan2(below[0], above[0]) * 2, ops.asinh(mul(conj(above), below)[1])


def acosh(z: Pair) -> Pair:
    below, above = sqrt(plus(z, -1)), sqrt(plus(z, 1))
    return ops.asinh(mul(conj(below), above)[0]), ops.atan2(below[1], above[0]) * 2


asinh = _of_i(asin)


def atanh(z: Pair) -> Pair:
    """(log1p(4x / ((1 - x)^2 + y^2)) + 2i atan2(2y, (1 - x)(1 + x) - y^2)) / 4. Far away it is 1/z
    beside a quarter turn."""
    x, y = z
    far = ops.maximum(ops.abs(x), ops.abs(y)) > float(2 ** (500 if x.dtype is float64 else 60))
    zero = zeros_like(x)
    a, b = ops.where(far, zero, ops.abs(x)), ops.where(far, zero, y)
    size = ops.log1p(a * 4 / ((1 - a) * (1 - a) + b * b)) * 0.25
    away = ops.abs(reciprocal(z)[0])
    away = ops.where(infinite(z), zero, away)
    turn = ops.atan2(b * 2, (1 - a) * (a + 1) - b * b) * 0.5
    quarter = ops.copysign(full_like(y, math.pi / 2), y)
    return ops.copysign(ops.where(far, away, size), x), ops.where(far, quarter, turn)


atan = _of_i(atanh)
