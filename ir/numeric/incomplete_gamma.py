"""The regularized incomplete gamma functions P(a, x) and Q(a, x) = 1 - P(a, x).

The regions are those of Cephes (S. L. Moshier): a series for small x, a continued fraction for
large x, and N. Temme's uniform expansion where a > 20 and x is near a (NIST's Digital Library of
Mathematical Functions, 8.11.4, 8.9.2 and 8.12). The sums have fixed numbers of terms.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from .error_function import erfc
from .float64 import in_float64, polynomial
from .gamma_function import lgamma, lgamma1p

if TYPE_CHECKING:
    from fractions import Fraction

_ORDERS, _TERMS = 12, 22  # of Temme's expansion, in 1 / a and in eta
_NEAR = 0.3  # |x / a - 1| up to which it is taken


@functools.cache
def stirling() -> tuple[float, ...]:
    """The coefficients g of gamma(a) = sqrt(2 pi / a) (a / e)^a sum of g[k] / a^k, lowest first.

    They follow from alpha, the inverse of the series of eta: g[k] = (2 k + 1)!! alpha[2 k + 1].
    """
    from fractions import Fraction

    alpha = _alpha(2 * _ORDERS + 2)
    double, out = Fraction(1), []
    for k in range(_ORDERS):
        double *= 2 * k + 1
        out.append(float(double * alpha[2 * k + 1]))
    return tuple(out)


@functools.cache
def _alpha(count: int) -> tuple[Fraction, ...]:
    """lambda - 1 = sum of alpha[k] eta^k, where eta^2 / 2 = lambda - 1 - log(lambda)."""
    from fractions import Fraction

    alpha = [Fraction(0), Fraction(1)]
    for k in range(2, count):
        inner = sum((j * alpha[j] * alpha[k - j + 1] for j in range(2, k)), Fraction(0))
        alpha.append((alpha[k - 1] - inner) / (k + 1))
    return tuple(alpha)


@functools.cache
def temme() -> tuple[tuple[float, ...], ...]:
    """The coefficients d[k][n] of the expansion in a^-k eta^n (DLMF 8.12.11 to 8.12.13), for each k
    with the highest power of eta first."""
    from fractions import Fraction

    count = _TERMS + 2 * _ORDERS
    alpha = _alpha(count + 3)
    first = [Fraction(-1, 3), *((n + 2) * alpha[n + 2] for n in range(1, count))]
    double, rows = Fraction(1), [first]
    for k in range(1, _ORDERS):
        double *= 2 * k + 1
        g = double * alpha[2 * k + 1]
        before = rows[-1]
        rows.append(
            [(-1) ** k * g * first[n] + (n + 2) * before[n + 2] for n in range(len(before) - 2)]
        )
    return tuple(tuple(float(d) for d in reversed(row[:_TERMS])) for row in rows)


_LOG_REST = tuple((-1) ** k / k for k in range(36, 1, -1))


def _rate(a: Any, x: Any) -> tuple[Any, Any]:
    """mu = x / a - 1, and mu - log(1 + mu) without cancellation."""
    mu = (x - a) / a
    small = np.clip(mu, -_NEAR, _NEAR)
    near = small * small * polynomial(small, _LOG_REST)
    return mu, np.where(np.abs(mu) <= _NEAR, near, mu - np.log1p(mu))


def _uniform(a: Any, x: Any) -> tuple[Any, Any]:
    """P and Q by Temme's expansion."""
    mu, rate = _rate(a, x)
    eta = np.copysign(np.sqrt(2 * rate), mu)
    rest = np.zeros_like(a)
    for row in reversed(temme()):
        rest = rest / a + polynomial(eta, row)
    rest = rest * np.exp(-a * rate) / np.sqrt(2 * np.pi * a)
    side = eta * np.sqrt(a / 2)
    return 0.5 * erfc(-side) - rest, 0.5 * erfc(side) + rest


def _power(a: Any, x: Any) -> Any:
    """x^a exp(-x) / gamma(a + 1)."""
    small = np.minimum(a, 20)
    direct = np.exp(small * np.log(np.maximum(x, 5e-324)) - x - lgamma(small + 1))
    split = small * np.log(x) < 700
    direct = np.where(split, x**small * np.exp(-x) / np.exp(lgamma(small + 1)), direct)
    large = np.maximum(a, 20)
    scale = np.sqrt(2 * np.pi * large) * polynomial(1 / large, stirling()[::-1])
    return np.where(a <= 20, direct, np.exp(-large * _rate(large, x)[1]) / scale)


def _series(a: Any, x: Any) -> Any:
    """P(a, x) for x <= a + 1."""
    term = total = np.ones_like(a)
    for k in range(1, 160):
        term = term * (x / (a + k))
        total = total + term
        if not (term > 1e-17 * total).any():
            break
    return total * _power(a, x)


def _fraction(a: Any, x: Any) -> Any:
    """Q(a, x) for x > a + 1, by Lentz's algorithm."""
    tiny = 1e-300
    b = x + 1 - a
    c, d = np.full_like(a, 1 / tiny), 1 / b
    total = d
    for k in range(1, 800):
        numerator = -k * (k - a)
        b = b + 2
        d = numerator * d + b
        c = b + numerator / c
        d = 1 / np.where(np.abs(d) < tiny, tiny, d)
        change = c * d
        total = total * change
        if not (np.abs(change - 1) > 1e-15).any():
            break
    return total * _power(a, x) * a


def _complement(a: Any, x: Any) -> Any:
    """Q(a, x) for x <= 1.1, where it isn't small (DLMF 8.7.3)."""
    log = a * np.log(x)
    term, total = np.ones_like(a), np.zeros_like(a)
    for k in range(1, 40):
        term = term * (-x / k)
        total = total + term / (a + k)
    start = lgamma1p(a)
    # 1 - x^a / gamma(a + 1) - x^a / gamma(a) total
    return -np.expm1(log - start) - np.exp(log - start) * a * total


def _regularized(a: Any, x: Any) -> tuple[Any, Any]:
    a, x = np.broadcast_arrays(a, x)
    known = (a > 0) & (x > 0) & np.isfinite(a) & np.isfinite(x)
    a1, x1 = np.where(known, a, 1.0), np.where(known, x, 1.0)
    near = (a1 > 20) & (np.abs(x1 - a1) <= _NEAR * a1)
    most = np.where(x1 <= 0.5, -0.4 / np.log(np.minimum(x1, 0.5)), x1 * 1.1)
    small = (x1 <= 1.1) & (a1 <= most)
    above = ~near & ~small & (x1 > a1 + 1)
    below = ~near & ~small & ~above
    p, q = np.zeros(a1.shape), np.zeros(a1.shape)
    for where, function, gives_p in (
        (below, _series, True),
        (above, _fraction, False),
        (small, _complement, False),
    ):
        if where.any():
            value = function(a1[where], x1[where])
            p[where], q[where] = (value, 1 - value) if gives_p else (1 - value, value)
    if near.any():
        p[near], q[near] = _uniform(a1[near], x1[near])
    precise = small & (p < 0.1)
    if precise.any():
        p[precise] = _series(a1[precise], x1[precise])
    # PyTorch's order of the edges, of which the first that holds decides.
    edges: list[tuple[Any, Any, Any]] = [
        (known, p, q),
        ((a < 0) | (x < 0) | ((a == 0) & ~(x > 0)), np.nan, np.nan),
        (a == 0, 1.0, 0.0),
        (x == 0, 0.0, 1.0),
        (np.isinf(a) & np.isinf(x), np.nan, np.nan),
        (np.isinf(a), 0.0, 1.0),
        (np.isinf(x), 1.0, 0.0),
    ]
    conditions = [condition for condition, _, _ in edges]
    lower = np.select(conditions, [value for _, value, _ in edges], np.nan)
    return lower, np.select(conditions, [value for _, _, value in edges], np.nan)


@in_float64
def igamma(a: Any, x: Any) -> Any:
    """P(a, x), the integral of t^(a - 1) exp(-t) from 0 to x over gamma(a)."""
    return _regularized(a, x)[0]


@in_float64
def igammac(a: Any, x: Any) -> Any:
    """Q(a, x), the integral of t^(a - 1) exp(-t) from x to infinity over gamma(a)."""
    return _regularized(a, x)[1]
