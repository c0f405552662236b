"""The regularized incomplete gamma functions of float32, by way of float64.

The regions are those of `ir/numeric/incomplete_gamma.py`, whose tables serve here, cut where they
are good for float32. A region is computed if one of the lanes lies in it, and its sums end when all
lanes have their digits.
"""

from __future__ import annotations

import math

from tilewright.ir.numeric.incomplete_gamma import stirling, temme

from .error import erfc64
from .exponential import expm1_64
from .expression import Expr, polynomial, rarely, repeated, where, wide
from .gamma import lgamma_positive
from .logarithm import log1p64

_NEAR = 0.3
"""|x / a - 1| up to which Temme's expansion is taken, for a > 20."""
_TINY = 0.05
"""The a below which 1 - P(a, x) would lose digits of Q, for an x of up to 1.1."""
_DIGITS = 1e-10
_ORDERS, _TERMS = 8, 12
_RATE = [(-1) ** k / k for k in range(19, 1, -1)]
_EULER = 0.5772156649015329
_ZETA = (
    1.6449340668482264, 1.2020569031595942, 1.0823232337111382, 1.03692775514337,
    1.0173430619844491, 1.0083492773819228, 1.0040773561979443,
)  # fmt: skip
# lgamma(1 + a) / a
_LGAMMA1P = [(-1) ** k * z / k for k, z in reversed(list(enumerate(_ZETA, 2)))] + [-_EULER]


def _rate(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """mu = x / a - 1, and mu - log(1 + mu)."""
    mu = (x - a) / a
    small = mu.most(_NEAR).least(-_NEAR)
    near = small * small * polynomial(small, _RATE)
    return mu, where(mu.abs() <= _NEAR, near, mu - log1p64(mu))


def _power(a: Expr, x: Expr) -> Expr:
    """x^a exp(-x) / gamma(a + 1)."""
    small = a.most(20.0)
    direct = (small * x.call("log_near") - x - lgamma_positive(small + 1.0)).call("exp_near")

    def far() -> tuple[Expr]:
        large = a.least(20.0)
        scale = (large * (2 * math.pi)).sqrt() * polynomial(1.0 / large, stirling()[::-1])
        return ((-(large * _rate(large, x)[1])).call("exp_near") / scale,)

    (out,) = rarely(a > 20.0, (direct,), far)
    return out


def _series(a: Expr, x: Expr) -> Expr:
    """The sum of x^k / ((a + 1) … (a + k)), for x <= a + 1."""

    def step(state: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], Expr]:
        term, total, b = state
        b = b + 1.0
        term = term * (x / b)
        total = total + term
        return (term, total, b), term > total * _DIGITS

    one = x * 0.0 + 1.0
    return repeated((one, one, a), step)[1]


def _fraction(a: Expr, x: Expr) -> Expr:
    """The continued fraction of Q(a, x) / (x^a exp(-x) / gamma(a)), for x > a + 1, by Steed's
    algorithm."""

    def step(state: tuple[Expr, ...]) -> tuple[tuple[Expr, ...], Expr]:
        change, total, d, b, k = state
        b = b + 2.0
        d = 1.0 / (b - k * (k - a) * d)
        change = (b * d - 1.0) * change
        total = total + change
        more = (change.abs() > total.abs() * _DIGITS) & (k < 2000.0)
        return (change, total, d, b, k + 1.0), more

    b = x + 1.0 - a
    d = 1.0 / b
    return repeated((d, d, d, b, x * 0.0 + 1.0), step)[1]


def _complement(a: Expr, x: Expr) -> Expr:
    """Q(a, x) for small a and an x of up to 1.1 (DLMF 8.7.3)."""
    term = total = x * 0.0
    term = term + 1.0
    for k in range(1, 17):
        term = term * (x * (-1 / k))
        total = total + term / (a + float(k))
    start = (x.call("log_near") - polynomial(a, _LGAMMA1P)) * a
    return -expm1_64(start) - start.call("exp_near") * a * total


def _uniform(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    """P and Q by Temme's expansion."""
    mu, rate = _rate(a, x)
    eta = (rate * 2.0).sqrt().copysign(mu)
    inverse = 1.0 / a
    rest = a * 0.0
    for row in reversed(temme()[:_ORDERS]):
        rest = rest * inverse + polynomial(eta, row[-_TERMS:])
    rest = rest * (-(a * rate)).call("exp_near") / (a * (2 * math.pi)).sqrt()
    side = eta * (a * 0.5).sqrt()
    return erfc64(-side) * 0.5 - rest, erfc64(side) * 0.5 + rest


def _regularized(a: Expr, x: Expr) -> tuple[Expr, Expr]:
    inf = math.inf
    known = (a > 0.0) & (x > 0.0) & (a < inf) & (x < inf)
    a1, x1 = where(known, a, 1.0), where(known, x, 1.0)
    near = (a1 > 20.0) & ((x1 - a1).abs() <= a1 * _NEAR)
    small = (a1 < _TINY) & (x1 <= 1.1)
    above = (x1 > a1 + 1.0) & ~near
    below = ~(near | small | above)
    power = _power(a1, x1)
    p = power * _series(where(below, a1, 1.0), where(below, x1, 0.0))
    q = 1.0 - p

    def by_fraction() -> tuple[Expr, Expr]:
        found = power * a1 * _fraction(where(above, a1, 1.0), where(above, x1, 100.0))
        return 1.0 - found, found

    def by_complement() -> tuple[Expr, Expr]:
        found = _complement(where(small, a1, _TINY), where(small, x1, 1.0))
        return 1.0 - found, found

    p, q = rarely(above, (p, q), by_fraction)
    p, q = rarely(small, (p, q), by_complement)
    p, q = rarely(near, (p, q), lambda: _uniform(where(near, a1, 30.0), where(near, x1, 30.0)))
    a_zero, x_zero, a_inf, x_inf = a.equals(0.0), x.equals(0.0), a.equals(inf), x.equals(inf)
    # PyTorch's order of the edges, of which the first that holds decides.
    edges = (
        ((a < 0.0) | (x < 0.0) | (a_zero & ~(x > 0.0)), math.nan, math.nan),
        (a_zero, 1.0, 0.0),
        (x_zero, 0.0, 1.0),
        (a_inf & x_inf, math.nan, math.nan),
        (a_inf, 0.0, 1.0),
        (x_inf, 1.0, 0.0),
        (a.isnan() | x.isnan(), math.nan, math.nan),
    )
    for condition, lower, upper in reversed(edges):
        p, q = where(condition, lower, p), where(condition, upper, q)
    return p, q


@wide("igamma", 2)
def igamma(a: Expr, x: Expr) -> Expr:
    """0.6 ulp."""
    return _regularized(a, x)[0]


@wide("igammac", 2)
def igammac(a: Expr, x: Expr) -> Expr:
    """0.6 ulp."""
    return _regularized(a, x)[1]
