"""The logarithm of the gamma function and its derivatives."""

from __future__ import annotations

import math

from ..node import Node
from .bessel import polynomial, wide
from .binary import zeta
from .generate import constant
from .ternary import where
from .unary import float_unary, sin

lgamma = float_unary(
    "lgamma",
    "special.lgamma({0})",
    "tw_lgamma({0})",
    lambda g, out, x: g * digamma(x),
    domain=(0.3, 6),
    cost=40,
)
digamma = float_unary(
    "digamma",
    "special.digamma({0})",
    "tw_digamma({0})",
    lambda g, out, x: g * polygamma(1, x),
    domain=(0.3, 6),
    cost=40,
)

_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
_FAR = 12
"""From here on the asymptotic series has all digits of float64."""


def _above(z: Node) -> Node:
    """trigamma(z) for z > 0 (NIST's Digital Library of Mathematical Functions, 5.15.8), and by its
    recurrence below `_FAR`. Neighbouring terms of that, 1 / a^2 + 1 / b^2, share a quotient."""
    near = z < _FAR
    small = where(near, z, constant(1, z.dtype))
    total = constant(0, z.dtype)
    for k in reversed(range(0, _FAR, 2)):
        a, b = small + k, small + (k + 1)
        product = a * b
        total = total + (a * a + b * b) / (product * product)
    far = where(near, z + _FAR, z)
    inverse = 1 / far
    square = inverse * inverse
    series = polynomial(square, _BERNOULLI[::-1]) * square * inverse + square * 0.5 + inverse
    return where(near, series + total, series)


trigamma_above = wide("trigamma", _above, lambda out, x: zeta(constant(3, x.dtype), x) * -2)
"""The first derivative of digamma above 0. 5 ulp."""


def polygamma(n: int, x: Node) -> Node:
    """The n-th derivative of digamma: (-1)^(n + 1) n! zeta(n + 1, x) for n > 0."""
    if n == 0:
        return digamma(x)
    if n != 1:
        return zeta(constant(n + 1, x.dtype), x) * float((-1) ** (n + 1) * math.factorial(n))
    # Below 1/2 by reflection, psi'(x) = (pi / sin(pi x))^2 - psi'(1 - x).
    low = x < 0.5
    ratio = math.pi / sin(x * math.pi)
    above = trigamma_above(where(low, 1 - x, x))
    return where(low, ratio * ratio - above, above)
