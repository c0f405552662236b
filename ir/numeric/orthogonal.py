"""Orthogonal polynomials of degree n at x, each by its recurrence of three terms.

p(0) = 1, p(1) = a x + b, and
(e k + 1) p(k + 1) = (c k + d + (f k + g) x) p(k) - (h k + i) p(k - 1).
The coefficients of each family are in NIST's Digital Library of Mathematical Functions, 18.9.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .float64 import in_float64

_SHORT = 7
"""From this degree on Chebyshev's polynomials inside of [-1, 1] are quotients of sines."""
NO_ANGLES = 4


@dataclass(frozen=True)
class Family:
    """The coefficients a to i. angles: which quotient of sines it is, of those in `_angles`."""

    name: str
    coefficients: tuple[float, ...]
    angles: int = NO_ANGLES

    def first(self, x: Any) -> Any:
        """p(1); of arrays or nodes."""
        a, b = self.coefficients[:2]
        return x * float(a) + float(b)

    def next_term(self, k: int, x: Any, now: Any, before: Any) -> Any:
        """p(k + 1) from p(k) and p(k - 1); of arrays or nodes."""
        c, d, e, f, g, h, i = self.coefficients[2:]
        constant, slope, past, under = c * k + d, f * k + g, h * k + i, e * k + 1
        factor = x * float(slope) + float(constant) if constant else x * float(slope)
        total = factor * now - before * float(past)
        return total / float(under) if under != 1 else total


# a, b, c, d, e, f, g, h, i
CHEBYSHEV_T = Family("chebyshev_t", (1, 0, 0, 0, 0, 0, 2, 0, 1), 0)
CHEBYSHEV_U = Family("chebyshev_u", (2, 0, 0, 0, 0, 0, 2, 0, 1), 1)
CHEBYSHEV_V = Family("chebyshev_v", (2, -1, 0, 0, 0, 0, 2, 0, 1), 2)
CHEBYSHEV_W = Family("chebyshev_w", (2, 1, 0, 0, 0, 0, 2, 0, 1), 3)
HERMITE_H = Family("hermite_h", (2, 0, 0, 0, 0, 0, 2, 2, 0))
HERMITE_HE = Family("hermite_he", (1, 0, 0, 0, 0, 0, 1, 1, 0))
LAGUERRE = Family("laguerre", (-1, 1, 2, 1, 1, 0, -1, 1, 0))
LEGENDRE = Family("legendre", (1, 0, 0, 0, 1, 2, 1, 1, 0))


def _angles(kind: int, x: Any, n: Any) -> Any:
    """Chebyshev's polynomials for |x| <= 1, with their limits at 1 and -1."""
    t = np.arccos(x)
    half = n + 0.5
    even = np.where(n % 2 == 0, 1.0, -1.0)
    top, bottom, high, low = (
        (np.cos(n * t), 1.0, 1.0, even),
        (np.sin((n + 1) * t), np.sin(t), n + 1, even * (n + 1)),
        (np.cos(half * t), np.cos(t / 2), 1.0, even * (2 * n + 1)),
        (np.sin(half * t), np.sin(t / 2), 2 * n + 1, even),
    )[kind]
    return np.where(x == 1, high, np.where(x == -1, low, top / bottom))


def _polynomial(family: Family) -> Callable[[Any, Any], Any]:
    @in_float64
    def evaluate(x: Any, n: Any) -> Any:
        x, n = np.broadcast_arrays(x, np.trunc(n))
        before, now = np.ones(x.shape), family.first(x)
        out = np.where(n == 0, before, np.where(n == 1, now, 0))
        left = n >= 2
        if family.angles != NO_ANGLES:
            inside = (n >= _SHORT) & (np.abs(x) <= 1)
            out = np.where(inside, _angles(family.angles, x, n), out)
            left &= ~inside
        for k in range(1, int(np.max(n, initial=1, where=left))):
            before, now = now, family.next_term(k, x, now, before)
            out = np.where(left & (n == k + 1), now, out)
            left &= n > k + 1
            if np.isnan(now).all(where=left):  # and all that follow
                break
        return np.where(left, np.nan, out)

    return evaluate


chebyshev_t = _polynomial(CHEBYSHEV_T)
chebyshev_u = _polynomial(CHEBYSHEV_U)
chebyshev_v = _polynomial(CHEBYSHEV_V)
chebyshev_w = _polynomial(CHEBYSHEV_W)
hermite_h = _polynomial(HERMITE_H)
hermite_he = _polynomial(HERMITE_HE)
laguerre = _polynomial(LAGUERRE)
legendre = _polynomial(LEGENDRE)
