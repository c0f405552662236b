"""Sizes and directions of complex numbers, and real tensors of their parts."""

from __future__ import annotations

import math

from ..dtype import COMPLEX, real_of
from ..node import Node
from .binary import atan2, bitwise_and, bitwise_or, eq, maximum, minimum
from .complex import imag, make, real, require_complex
from .composite import composite, like_first, widen
from .movement import cat, reshape, slice_axis, unsqueeze
from .ternary import where
from .unary import abs, full_like, isfinite, isinf, isnan, sqrt, zeros_like


def hypot(a: Node, b: Node) -> Node:
    """sqrt(a^2 + b^2), without overflow in between."""
    a, b = abs(a), abs(b)
    high, low = maximum(a, b), minimum(a, b)
    zero, one = zeros_like(high), full_like(high, 1)
    plain = bitwise_and(high > 0, isfinite(high))
    ratio = where(plain, low, zero) / where(plain, high, one)
    length = high * sqrt(ratio * ratio + 1)
    # An infinite side is infinitely long, whatever the other.
    return where(bitwise_or(isinf(a), isinf(b)), full_like(high, math.inf), length)


def _modulus_vjp(g: Node, out: Node, x: Node) -> tuple[Node]:
    # At zero there is a kink; PyTorch takes its middle, zero.
    zero = eq(out, zeros_like(out))
    scale = where(zero, zeros_like(out), g / where(zero, full_like(out, 1), out))
    return (make(real(x) * scale, -imag(x) * scale),)


modulus = composite(
    "modulus",
    lambda x: (x.shape, real_of(x.dtype)),
    lambda x: hypot(widen(real(x)), widen(imag(x))),
    vjp=_modulus_vjp,
    complex=True,
    complex_half=True,
    pointwise=True,
)
"""|x| of a complex x, a real tensor."""


def angle(x: Node) -> Node:
    """The argument of complex numbers in [-pi, pi]; of real ones 0 or pi, or NaN."""
    if x.dtype.category == COMPLEX:
        return atan2(imag(x), real(x))
    return turn(x)


turn = composite(
    "turn",
    like_first("turn"),
    lambda x: where(isnan(x), x, where(x < 0, full_like(x, math.pi), zeros_like(x))),
    cost=4,
    pointwise=True,
)
"""The argument of real numbers: pi below zero, else 0."""


def sgn(x: Node) -> Node:
    """x / |x| for complex x, and 0 for 0."""
    size = modulus(x)
    zero = eq(size, zeros_like(size))
    divisor = where(zero, full_like(size, 1), size)
    a, b = (where(zero, zeros_like(size), part / divisor) for part in (real(x), imag(x)))
    return make(a, b)


def view_as_real(x: Node) -> Node:
    """The parts of complex x along a new last dimension of size 2."""
    require_complex("view_as_real", x)
    return cat([unsqueeze(real(x), x.rank), unsqueeze(imag(x), x.rank)], x.rank)


def view_as_complex(x: Node) -> Node:
    """The complex numbers whose parts lie along the last dimension of x."""
    parts = (slice_axis(x, x.rank - 1, i, i + 1) for i in range(2))
    return make(*(reshape(part, x.shape[:-1]) for part in parts))
