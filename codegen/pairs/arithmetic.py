"""Arithmetic on complex numbers as arithmetic on pairs of real ones."""

from __future__ import annotations

import math

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.polar import hypot
from tilewright.ir.ops.unary import full_like, zeros_like

Pair = tuple[Node, Node]
"""The real and the imaginary part of a node."""


def add(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def sub(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def mul(a: Pair, b: Pair) -> Pair:
    return a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]


def div(a: Pair, b: Pair) -> Pair:
    """R. L. Smith, "Algorithm 116: Complex division" (1962): no square of the divisor, which might
    overflow. A quotient by zero is that of both parts."""
    (x, y), (c, d) = a, b
    wide = ops.abs(c) >= ops.abs(d)
    high, low = ops.where(wide, c, d), ops.where(wide, d, c)
    zero = ops.eq(high, zeros_like(high))
    ratio = low / high
    length = ops.where(zero, ops.abs(c), high + low * ratio)
    real = ops.where(wide, x + y * ratio, x * ratio + y)
    imag = ops.where(wide, y - x * ratio, y * ratio - x)
    return ops.where(zero, x, real) / length, ops.where(zero, y, imag) / length


def reciprocal(z: Pair) -> Pair:
    return div((full_like(z[0], 1), zeros_like(z[0])), z)


def neg(z: Pair) -> Pair:
    return -z[0], -z[1]


def conj(z: Pair) -> Pair:
    return z[0], -z[1]


def scaled(z: Pair, factor: float) -> Pair:
    return z[0] * factor, z[1] * factor


def plus(z: Pair, number: float) -> Pair:
    return z[0] + number, z[1]


def times_i(z: Pair) -> Pair:
    return -z[1], z[0]


def over_i(z: Pair) -> Pair:
    return z[1], -z[0]


def where(condition: Node, a: Pair, b: Pair) -> Pair:
    return ops.where(condition, a[0], b[0]), ops.where(condition, a[1], b[1])


def is_zero(z: Pair) -> Node:
    nothing = zeros_like(z[0])
    return ops.bitwise_and(ops.eq(z[0], nothing), ops.eq(z[1], nothing))


def eq(a: Pair, b: Pair) -> Node:
    return ops.bitwise_and(ops.eq(a[0], b[0]), ops.eq(a[1], b[1]))


def ne(a: Pair, b: Pair) -> Node:
    return ops.bitwise_or(ops.ne(a[0], b[0]), ops.ne(a[1], b[1]))


def modulus(z: Pair) -> Node:
    return hypot(*z)


def angle(z: Pair) -> Node:
    return ops.atan2(z[1], z[0])


def infinite(z: Pair) -> Node:
    """Whether a part is infinite."""
    return ops.bitwise_or(ops.isinf(z[0]), ops.isinf(z[1]))


def largest(x: Node) -> float:
    """The largest finite number of a real dtype, rounded down to a power of two."""
    return math.ldexp(1.0, 1023 if x.dtype.itemsize == 8 else 127)
