"""lgamma and digamma, for float32 by way of float64. Coefficients: tools/fit_math.py."""

from __future__ import annotations

import math

from .circular import _COS, _SIN
from .expression import Expr, fma, polynomial, where, wide

# lgamma(x) = (x - 1) (x - 2) P(x - 2.25), 1.5 <= x <= 3
_LGAMMA = (
    5.087210484596518e-07,
    -1.213475393345124e-06,
    1.8041576649828604e-06,
    -4.363275698915033e-06,
    1.1573673266985032e-05,
    -2.8319171688220492e-05,
    6.950550251540058e-05,
    -0.00017366834560387403,
    0.0004406588549144823,
    -0.001140991620329663,
    0.0030411185436012844,
    -0.00846402472271003,
    0.02526835496106197,
    -0.08588084755546327,
    0.3995894876556691,
)

# Bernoulli numbers B(2k), k = 1, 2, …
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def _sin_pi(away: Expr) -> Expr:
    """sin(pi away) for |away| <= 1 / 2."""
    size = away.abs()
    steep = size > 0.25
    r = where(steep, 0.5 - size, size) * math.pi
    y = r * r
    sin = fma(polynomial(y, _SIN) * y, r, r)
    cos = fma(polynomial(y, _COS) * y, y, fma(y, -0.5, 1.0))
    return where(steep, cos, sin).copysign(away)


def lgamma_positive(x: Expr) -> Expr:
    # Up to 1.5 by lgamma(x) = lgamma(x + 1) - log(x), twice below 0.5.
    low, lower = x < 1.5, x < 0.5
    product = where(lower, x * (x + 1.0), where(low, x, 1.0))
    near = where(lower, x + 2.0, where(low, x + 1.0, x)).most(3.0)
    middle = (near - 1.0) * (near - 2.0) * polynomial(near - 2.25, _LGAMMA)
    log = where(x < 3.0, product, x).call("log_near")
    y = 1.0 / (x * x)
    series = polynomial(
        y, [b / (2 * k * (2 * k - 1)) for k, b in reversed(list(enumerate(_BERNOULLI, 1)))]
    )
    far = fma(x - 0.5, log - 1.0, series / x + (0.5 * math.log(2 * math.pi) - 0.5))
    return where(x < 3.0, middle - log, far)


@wide("lgamma")
def lgamma(x: Expr) -> Expr:
    """1 ulp, or 1e-7 near the roots between the poles."""
    size = x.abs()
    away = size - size.round()
    positive = lgamma_positive(where(size.equals(0.0), 1.0, size))
    mirrored = (math.pi / (size * _sin_pi(away)).abs()).call("log_near") - positive
    # Negative numbers by reflection: lgamma(x) = log |pi / (x sin(pi x))| - lgamma(-x).
    out = where(x < 0.0, mirrored, positive)
    out = where((x <= 0.0) & away.equals(0.0), math.inf, out)
    return where(size.equals(math.inf), math.inf, out)


@wide("digamma")
def digamma(x: Expr) -> Expr:
    """1 ulp, or 1e-7 near the roots between the poles."""
    mirrored = x < 0.5
    z = where(mirrored, 1.0 - x, x)
    shift: Expr = z * 0.0
    small = z < 8.0
    for k in range(8):
        shift = shift + 1.0 / (z + float(k))
    up = where(small, z + 8.0, z)
    y = 1.0 / (up * up)
    series = polynomial(y, [b / (2 * k) for k, b in reversed(list(enumerate(_BERNOULLI, 1)))]) * y
    out = up.call("log_near") - 0.5 / up - series
    out = out - where(small, shift, 0.0)
    away = x - x.round()
    cot = _sin_pi(0.5 - away.abs()).copysign(away) / _sin_pi(away)
    # cot(pi x) has the sign of `away`.
    cot = cot.abs().copysign(away)
    out = where(mirrored, out - cot * math.pi, out)
    out = where((x < 0.0) & away.equals(0.0), math.nan, out)
    out = where(x.equals(0.0), (x * 0.0 - math.inf).copysign(x) * -1.0, out)
    return where(x.equals(math.inf), math.inf, out)
