"""Bessel functions of orders 0 and 1, and Airy's Ai.

Each is a composite of polynomials (ir/numeric/expansions.py) that are chosen by the size of the
argument. All of them are computed in float64, so a float32 is rounded once. A bound in units of the
last place (ulp) holds for float64, away from the zeros of an oscillating function; near these it
holds in units of the oscillation's height.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..dtype import float32, float64
from ..node import Node
from ..numeric import expansions
from ..op import Op
from .binary import eq, maximum, minimum
from .composite import as_dtype, composite, like_first
from .ternary import where
from .unary import abs, cast, cos, exp, full_like, isinf, log, sign, sin, sqrt

Formula = Callable[[Node], Node]


def polynomial(x: Node, coefficients: Sequence[float]) -> Node:
    """Horner's rule, highest power first."""
    total = x * coefficients[0] + coefficients[1]
    for c in coefficients[2:]:
        total = total * x + c
    return total


def in_float64(f: Formula) -> Formula:
    """`f` computed in float64, whatever the float that it is given."""
    return lambda x: as_dtype(f(as_dtype(x, float64)), x.dtype)


def wide(
    name: str,
    f: Formula,
    slope: Callable[[Node, Node], Node] | None = None,
    narrow: Formula | None = None,
) -> Op:
    """The record of `f`. `slope(out, x)` is its derivative; by default that of the formula.
    `narrow` is the formula where a result of float32 is rounded from float64."""
    exact, short = in_float64(f), in_float64(narrow or f)
    return composite(
        name,
        like_first(name),
        lambda x: exact(x) if x.dtype is float64 else short(x),
        vjp=None if slope is None else lambda g, out, x: (g * slope(out, x),),
        pointwise=True,
        cost=80,
    )


def _at_most(x: Node, bound: float) -> Node:
    return minimum(x, full_like(x, bound))


def _at_least(x: Node, bound: float) -> Node:
    return maximum(x, full_like(x, bound))


def _at_zero(x: Node, value: float, other: Node) -> Node:
    return where(eq(x, full_like(x, 0)), full_like(other, value), other)


# Modified Bessel functions of the first kind.


def _near_i(x: Node, coefficients: Sequence[float]) -> Node:
    near = _at_most(abs(x), 8)
    return polynomial(near * near, coefficients)


def _far_i(x: Node, coefficients: Sequence[float]) -> Node:
    """exp(-|x|) times the function, for |x| >= 8."""
    far = _at_least(abs(x), 8)
    return polynomial(16 / far - 1, coefficients) / sqrt(far)


def _i0(x: Node) -> Node:
    # exp(|x|) overflows before I0 does: it is multiplied in halves.
    half = exp(abs(x) * 0.5)
    far = half * _far_i(x, expansions.I0_FAR) * half
    return where(abs(x) <= 8, _near_i(x, expansions.I0), far)


def _i0e(x: Node) -> Node:
    near = exp(-abs(x)) * _near_i(x, expansions.I0)
    return where(abs(x) <= 8, near, _far_i(x, expansions.I0_FAR))


def _i1(x: Node) -> Node:
    half = exp(abs(x) * 0.5)
    far = half * _far_i(x, expansions.I1_FAR) * half * sign(x)
    return where(abs(x) <= 8, x * _near_i(x, expansions.I1), far)


def _i1e(x: Node) -> Node:
    near = exp(-abs(x)) * x * _near_i(x, expansions.I1)
    return where(abs(x) <= 8, near, _far_i(x, expansions.I1_FAR) * sign(x))


def _over(a: Node, x: Node) -> Node:
    """a / x; 1/2 at zero, the limit for I1."""
    zero = eq(x, full_like(x, 0))
    return where(zero, full_like(x, 0.5), a / where(zero, full_like(x, 1), x))


i0 = wide("i0", _i0, lambda out, x: i1(x))
"""I0. 5 ulp."""
i0e = wide("i0e", _i0e, lambda out, x: i1e(x) - sign(x) * out)
"""exp(-|x|) I0(x). 5 ulp."""
i1 = wide("i1", _i1, lambda out, x: i0(x) - _over(out, x))
"""I1. 5 ulp."""
i1e = wide("i1e", _i1e, lambda out, x: i0e(x) - sign(x) * out - _over(out, x))
"""exp(-|x|) I1(x). 5 ulp."""

# Modified Bessel functions of the second kind: inf at 0, NaN below.


def _k0_near(x: Node) -> Node:
    near = _at_most(x, 2)
    z = near * near
    return polynomial(z, expansions.K0) - log(near * 0.5) * polynomial(z, expansions.I0)


def _k1_near(x: Node) -> Node:
    near = _at_most(x, 2)
    z = near * near
    series = log(near * 0.5) * polynomial(z, expansions.I1) + polynomial(z, expansions.K1)
    return _at_zero(x, math.inf, near * series + 1 / near)


def _far_k(x: Node, coefficients: Sequence[float]) -> Node:
    """exp(x) times the function, for x >= 2."""
    far = _at_least(x, 2)
    return polynomial(4 / far - 1, coefficients) / sqrt(far)


def _k0(x: Node) -> Node:
    return where(x <= 2, _k0_near(x), exp(-x) * _far_k(x, expansions.K0_FAR))


def _k0e(x: Node) -> Node:
    return where(x <= 2, exp(x) * _k0_near(x), _far_k(x, expansions.K0_FAR))


def _k1(x: Node) -> Node:
    return where(x <= 2, _k1_near(x), exp(-x) * _far_k(x, expansions.K1_FAR))


def _k1e(x: Node) -> Node:
    return where(x <= 2, exp(x) * _k1_near(x), _far_k(x, expansions.K1_FAR))


k0 = wide("modified_bessel_k0", _k0)
"""K0. 5 ulp."""
k1 = wide("modified_bessel_k1", _k1)
"""K1. 5 ulp."""
k0e = wide("scaled_modified_bessel_k0", _k0e)
"""exp(x) K0(x). 5 ulp."""
k1e = wide("scaled_modified_bessel_k1", _k1e)
"""exp(x) K1(x). 5 ulp."""

# Bessel functions. Up to 8 the first three zeros of J are factors, each as the sum of a float64 and
# its rest; beyond that stands Hankel's expansion.

_ZEROS_0 = (
    (2.404825557695773, -1.176691651530894e-16),
    (5.520078110286311, 8.088597146146722e-17),
    (8.653727912911013, -2.92812607320779e-16),
)
_ZEROS_1 = (
    (3.8317059702075125, -1.5269184090088067e-16),
    (7.015586669815619, -9.414165653410389e-17),
    (10.173468135062722, 4.482162274768888e-16),
)


def _through(size: Node, zeros: Sequence[tuple[float, float]]) -> Node:
    """The product of size^2 - zero^2."""
    first, *others = (((size - zero) - rest) * (size + zero) for zero, rest in zeros)
    for other in others:
        first = first * other
    return first


def _j0_near(size: Node) -> Node:
    t = size * size * (1 / 32) - 1
    return _through(size, _ZEROS_0) * polynomial(t, expansions.J0)


def _j1_near(size: Node) -> Node:
    t = size * size * (1 / 32) - 1
    return size * _through(size, _ZEROS_1) * polynomial(t, expansions.J1)


def _hankel(far: Node, p: Sequence[float], q: Sequence[float]) -> tuple[Node, ...]:
    """P and Q over sqrt(pi x), and the sine and cosine of x. Quotients are dear: there are two."""
    inverse, size = 1 / far, 1 / sqrt(far * math.pi)
    t = inverse * inverse * 128 - 1
    return polynomial(t, p) * size, polynomial(t, q) * (inverse * size), sin(far), cos(far)


def _j0(x: Node) -> Node:
    size = abs(x)
    p, q, s, c = _hankel(_at_least(size, 8), expansions.P0, expansions.Q0)
    return where(size <= 8, _j0_near(_at_most(size, 8)), p * (c + s) - q * (s - c))


def _j1(x: Node) -> Node:
    size = abs(x)
    p, q, s, c = _hankel(_at_least(size, 8), expansions.P1, expansions.Q1)
    return where(size <= 8, _j1_near(_at_most(size, 8)), p * (s - c) + q * (s + c)) * sign(x)


def _y0(x: Node) -> Node:
    near = _at_most(x, 8)
    rest = polynomial(near * near * (1 / 32) - 1, expansions.Y0)
    series = log(near) * _j0_near(near) * (2 / math.pi) + rest
    p, q, s, c = _hankel(_at_least(x, 8), expansions.P0, expansions.Q0)
    return where(x <= 8, series, p * (s - c) + q * (s + c))


def _y1(x: Node) -> Node:
    near = _at_most(x, 8)
    rest = polynomial(near * near * (1 / 32) - 1, expansions.Y1)
    series = (log(near) * _j1_near(near) - 1 / near) * (2 / math.pi) + near * rest
    p, q, s, c = _hankel(_at_least(x, 8), expansions.P1, expansions.Q1)
    return where(x <= 8, _at_zero(x, -math.inf, series), q * (s - c) - p * (s + c))


j0 = wide("bessel_j0", _j0)
"""J0. 8 ulp."""
j1 = wide("bessel_j1", _j1)
"""J1. 8 ulp."""
y0 = wide("bessel_y0", _y0)
"""Y0: -inf at 0, NaN below. 8 ulp."""
y1 = wide("bessel_y1", _y1)
"""Y1: -inf at 0, NaN below. 8 ulp."""

# Airy's function.


def rounded(x: Node) -> Node:
    """`x` with 24 bits, so that products of two such numbers are exact."""
    return cast(cast(x, float32), float64)


def _zeta(x: Node) -> Node:
    return x * sqrt(x) * (2 / 3)


def _falling(x: Node) -> Node:
    """exp(-2 / 3 x^(3/2)) for 2 <= x. The exponent is kept in two parts: its rounding error would
    be one in the result, times its size."""
    x = _at_most(x, 120)
    root = sqrt(x)
    a, b = rounded(x), rounded(root)
    product = a * b
    # x sqrt(x) = product + rest, with sqrt(x) = b + (x - b^2) / (sqrt(x) + b).
    rest = (x - a) * root + a * ((x - b * b) / (root + b))
    head = rounded(product * (2 / 3))
    tail = (product * 2 - head * 3 + rest * 2) * (1 / 3)
    return exp(-head) * exp(-tail)


_ZETA_UP, _ZETA_DOWN = 2 * math.sqrt(8) / 3, 2 * math.sqrt(27) / 3  # of x = 2 and x = -3


def _airy(x: Node) -> Node:
    middle = polynomial(_at_most(_at_least(x, -3), 2) * 0.4 + 0.2, expansions.AIRY)
    high = _at_least(x, 2)
    zeta = _zeta(high)
    up = polynomial(2 * _ZETA_UP / zeta - 1, expansions.AIRY_FAR) * _falling(high)
    up = up / (sqrt(sqrt(high)) * (2 * math.sqrt(math.pi)))
    low = _at_least(-x, 3)
    zeta = _zeta(low)
    t = (2 * _ZETA_DOWN * _ZETA_DOWN) / (zeta * zeta) - 1
    p, q = polynomial(t, expansions.AIRY_P), polynomial(t, expansions.AIRY_Q) / zeta
    s, c = sin(zeta), cos(zeta)
    down = (p * (s + c) - q * (c - s)) / (sqrt(sqrt(low)) * math.sqrt(2 * math.pi))
    found = where(x > 2, up, where(x < -3, down, middle))
    return where(isinf(x), full_like(x, math.nan), found)


airy_ai = wide("airy_ai", _airy)
"""Ai; NaN at both infinities, as in PyTorch. 8 ulp above -3. Below, where the phase is rounded,
|x|^1.5 ulp."""
