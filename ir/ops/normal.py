"""Functions of the normal distribution, and entropies: composites with PyTorch's edge cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from ..dtype import float64
from ..node import Node
from ..numeric import expansions
from ..op import Aval
from ..shape import broadcast
from .bessel import polynomial, rounded, wide
from .binary import bitwise_and, eq, minimum
from .composite import as_dtype, composite, like_first, require_float
from .ternary import where
from .unary import abs, exp, float_unary, full_like, isnan, log, log1p, logical_not, sqrt


def _gauss(x: Node, factor: float) -> Node:
    """exp(factor x^2) for |x| <= 50. The square is split in an exact head and a rest: its rounding
    error would be one in the result, times its size. The rest is so small that four terms of its
    exponential do."""
    head = rounded(x)
    rest = (x - head) * (x + head) * factor
    return exp(head * head * factor) * polynomial(rest, (1 / 6, 1 / 2, 1, 1))


# By whether a result of float32 is rounded from them. Squares of float32 numbers are exact.
_ERFCX = expansions.ERFCX, expansions.ERFCX_SHORT
_GAUSS = _gauss, lambda x, factor: exp(x * x * factor)


def _erfcx_right(size: Node, coefficients: Sequence[float]) -> Node:
    return polynomial(1 - 4 / (size + 2), coefficients) / (size * 2 + 1)


def _erfcx(x: Node, short: bool = False) -> Node:
    # Below zero, erfcx(x) = 2 exp(x^2) - erfcx(-x).
    size = abs(x)
    right = _erfcx_right(size, _ERFCX[short])
    return where(x < 0, _GAUSS[short](minimum(size, full_like(size, 30)), 1) * 2 - right, right)


def _erfcx_slope(out: Node, x: Node) -> Node:
    # The two terms cancel for large x, so float32 takes them in float64.
    far = as_dtype(x, float64)
    return as_dtype(far * erfcx(far) * 2 - 2 / math.sqrt(math.pi), x.dtype)


erfcx = wide("erfcx", _erfcx, _erfcx_slope, partial(_erfcx, short=True))
"""exp(x^2) erfc(x). 4 ulp."""


def _erfc_near(x: Node) -> Node:
    size = abs(x)
    near = minimum(size, full_like(size, 36))
    # erfcx as in `_erfcx_right`, with one quotient for two.
    first, second = near + 2, near * 2 + 1
    both = 1 / (first * second)
    tail = polynomial(1 - 4 * (both * second), _ERFCX[True]) * (both * first) * exp(-(near * near))
    return where(x < 0, 2 - tail, tail)


erfc_near = float_unary(
    "erfc_near",
    "special.erfc({0})",
    "tw_erfc({0})",
    lambda g, out, x: g * exp(-(x * x)) * (-2 / math.sqrt(math.pi)),
    decompose=_erfc_near,
    cost=25,
)
"""erfc of a float64 to 1e-9, for results that are rounded to float32: a target that has a cheaper
form computes it whole. Exporters take it apart."""


def _tail(size: Node, short: bool) -> Node:
    """ndtr(-size) for size >= 0: erfc is exp times erfcx, which rounding hardly moves."""
    if short:
        return erfc_near(size * math.sqrt(0.5)) * 0.5
    most = minimum(size, full_like(size, 50))
    return _erfcx_right(most * math.sqrt(0.5), _ERFCX[False]) * _gauss(most, -0.5) * 0.5


def _ndtr(x: Node, short: bool = False) -> Node:
    tail = _tail(abs(x), short)
    return where(x < 0, tail, 1 - tail)


ndtr = wide(
    "ndtr",
    _ndtr,
    lambda out, x: exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi)),
    partial(_ndtr, short=True),
)
"""The normal distribution function. 5 ulp."""


def _log_ndtr(x: Node, short: bool = False) -> Node:
    size = abs(x)
    below = log(_erfcx_right(size * math.sqrt(0.5), _ERFCX[short]) * 0.5) - x * x * 0.5
    tail = _tail(size, short)
    return where(x < -1, below, log1p(where(x < 0, tail - 1, -tail)))


log_ndtr = wide(
    "log_ndtr",
    _log_ndtr,
    lambda out, x: math.sqrt(2 / math.pi) / erfcx(x * -math.sqrt(0.5)),
    partial(_log_ndtr, short=True),
)
"""The logarithm of the normal distribution function. 4 ulp."""


def _ndtri(p: Node) -> Node:
    # ndtri(p) = -ndtri(1 - p); the tail takes the smaller of the two.
    low = p < 0.5
    tail = where(low, p, 1 - p)
    y = p - 0.5
    near = minimum(abs(y), full_like(y, 0.37))
    center = y * polynomial(near * near, expansions.QUANTILE)
    r = sqrt(log(minimum(tail, full_like(tail, 0.15))) * -2)
    u = 1 / r

    def rest(coefficients: tuple[float, ...], start: float, end: float) -> Node:
        """The polynomial in 1 / r, r from `start` to `end`, in t = -1 at `end` and 1 at `start`."""
        a, b = 1 / end, 1 / start
        return polynomial((u - a) * (2 / (b - a)) - 1, coefficients)

    first = rest(expansions.QUANTILE_TAIL, 1.9, 6)
    second = rest(expansions.QUANTILE_FAR, 6, 15)
    third = rest(expansions.QUANTILE_FARTHEST, 15, 39)
    size = r - (log(r) + where(r < 6, first, where(r < 15, second, third))) / r
    out = where(abs(y) <= 0.36, center, where(low, -size, size))
    at_one = where(eq(p, full_like(p, 1)), full_like(p, math.inf), out)
    return where(eq(p, full_like(p, 0)), full_like(p, -math.inf), at_one)


ndtri = wide("ndtri", _ndtri, lambda out, p: exp(out * out * 0.5) * math.sqrt(2 * math.pi))
"""The quantile of the normal distribution: -inf at 0, inf at 1, NaN beyond. 4 ulp."""


def _entr(x: Node) -> Node:
    positive = -x * log(x)
    edge = where(x < 0, full_like(x, -math.inf), full_like(x, 0))
    return where(isnan(x), x, where(x > 0, positive, edge))


entr = composite(
    "entr",
    like_first("entr"),
    _entr,
    vjp=lambda g, out, x: (-g * (log(x) + 1),),
    domain=(0.1, 4),
    cost=16,
)
"""-x log(x): 0 at 0, -inf below."""


def _two(name: str) -> Callable[[Node, Node], Aval]:
    def infer(a: Node, b: Node) -> Aval:
        require_float(name, a, b)
        return broadcast(a.shape, b.shape), a.dtype

    return infer


def _times_log(a: Node, b: Node, logarithm: Node) -> Node:
    """a times a logarithm of b: 0 where a is 0, unless b is NaN."""
    product = a * logarithm
    zero = bitwise_and(eq(a, full_like(a, 0)), logical_not(isnan(b)))
    return where(zero, full_like(product, 0), product)


def _slope_in_a(g: Node, a: Node, b: Node, logarithm: Node, edge: float) -> Node:
    zero = bitwise_and(eq(a, full_like(a, 0)), b <= edge)
    return where(zero, full_like(g * logarithm, 0), g * logarithm)


xlogy = composite(
    "xlogy",
    _two("xlogy"),
    lambda a, b: _times_log(a, b, log(b)),
    vjp=lambda g, out, a, b: (_slope_in_a(g, a, b, log(b), 0), g * a / b),
    domain=(0.1, 4),
    cost=16,
)
"""a log(b): 0 where a is 0, unless b is NaN."""
xlog1py = composite(
    "xlog1py",
    _two("xlog1py"),
    lambda a, b: _times_log(a, b, log1p(b)),
    vjp=lambda g, out, a, b: (_slope_in_a(g, a, b, log1p(b), -1), g * a / (b + 1)),
    domain=(0.1, 4),
    cost=16,
)
"""a log(1 + b): 0 where a is 0, unless b is NaN."""
