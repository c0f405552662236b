"""Gamma numbers, with the derivative by their shape.

A rejection sampler of bounded length: each of its rounds is drawn for all elements, and the first
round that is accepted counts. So the sampler is elementwise arithmetic. It fuses, and it gives the
same numbers in every run.
"""

from __future__ import annotations

import math

import numpy as np

from ..dtype import float64
from ..node import Node
from ..op import Aval
from .binary import maximum, minimum
from .composite import composite, require_float
from .movement import reshape, slice_axis
from .polygamma import digamma
from .random import uniform
from .ternary import where
from .unary import cos, exp, expm1, full_like, log, log1p, sin, sqrt

_PAIRS = 3
_ROUNDS = 2 * _PAIRS
"""A round is accepted with probability 0.95 or more. So six fail once in 10^8 elements, which then
are the mean: less than what the rounding of float32 changes."""


def _infer(alpha: Node, seed: Node, offset: Node, as_log: bool) -> Aval:
    require_float("gamma_sample", alpha)
    return alpha.shape, alpha.dtype


def first_of(rounds: list[tuple[Node, Node]], otherwise: Node) -> Node:
    """The value of the first of the (accepted, value) pairs that is accepted."""
    chosen = otherwise
    for accepted, value in reversed(rounds):
        chosen = where(accepted, value, chosen)
    return chosen


def along(x: Node, start: int, stop: int) -> Node:
    """Rows of draws."""
    return slice_axis(x, 0, start, stop)


def each(x: Node) -> list[Node]:
    """The rows of draws, one by one."""
    return [reshape(along(x, i, i + 1), x.shape[1:]) for i in range(x.shape[0])]


def _sample(alpha: Node, seed: Node, offset: Node, as_log: bool) -> Node:
    """Marsaglia and Tsang, "A simple method for generating gamma variables", 2000: d v with
    v = (1 + z / sqrt(9 d))^3, a normal number z and d = alpha - 1/3. For alpha < 1 it is the number
    of alpha + 1, times u^(1 / alpha)."""
    u = uniform(seed, offset, (2 * _PAIRS + _ROUNDS + 1, *alpha.shape), alpha.dtype)
    radius = sqrt(log1p(-along(u, 0, _PAIRS)) * -2)
    angle = along(u, _PAIRS, 2 * _PAIRS) * (2 * math.pi)
    at = 2 * _PAIRS
    is_small = alpha < 1
    d = where(is_small, alpha + 1, alpha) - 1 / 3
    scale = 1 / sqrt(d * 9)
    rounds = []
    for z in (radius * cos(angle), radius * sin(angle)):
        log_u = log1p(-along(u, at, at + _PAIRS))
        at += _PAIRS
        base = z * scale + 1
        positive = base > 0
        log_v = log(where(positive, base, full_like(base, 1))) * 3
        cube = base * base * base
        bound = z * z * 0.5 + d - d * cube + d * log_v
        fine = where(positive, log_u < bound, log_u > 0)
        rounds += list(zip(each(fine), each(log_v if as_log else cube)))
    v = first_of(rounds, full_like(d, 0.0 if as_log else 1.0))
    log_boost = log1p(-each(along(u, at, at + 1))[0]) / alpha
    log_boost = where(is_small, log_boost, full_like(alpha, 0))
    return log(d) + v + log_boost if as_log else d * v * exp(log_boost)


def _vjp(
    g: Node, out: Node, alpha: Node, seed: Node, offset: Node, as_log: bool
) -> tuple[Node | None, ...]:
    if as_log:
        return g * log_derivative(alpha, exp(out), out), None, None
    tiny = full_like(out, float(np.finfo(out.dtype.np).tiny))
    x = maximum(out, tiny)
    return g * out * log_derivative(alpha, x, log(x)), None, None


gamma_sample = composite("gamma_sample", _infer, _sample, vjp=_vjp, params=("as_log",), cost=1000)
"""gamma_sample(alpha, seed, offset, as_log): numbers of the gamma distributions of shape `alpha`
and rate 1; their logarithms if `as_log`, which don't underflow for small shapes."""


# ---- the derivative by the shape -------------------------------------------------------------


def log_derivative(a: Node, x: Node, log_x: Node) -> Node:
    """d log x / d a, where x moves such that P(a, x), the distribution function, stays the same
    (Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", arXiv 1805.08498):
    -(dP / da) / (x dP / dx)."""
    near = minimum(x, full_like(x, 1))
    return where(x <= 1, _by_series(a, near, log_x), _by_quadrature(a, maximum(x, near), log_x))


def _by_series(a: Node, x: Node, log_x: Node) -> Node:
    """For x <= 1, by P(a, x) = x^a / Γ(a) Σ (-x)^n / (n! (a + n))."""
    terms = 20 if a.dtype is float64 else 12
    power = full_like(x, 1)
    first = 1 / a
    second = first * first
    for n in range(1, terms):
        power = power * x * (-1 / n)
        inverse = 1 / (a + n)
        term = power * inverse
        first, second = first + term, second + term * inverse
    return -exp(x) * ((log_x - digamma(a)) * first - second)


def _by_quadrature(a: Node, x: Node, log_x: Node) -> Node:
    """For x >= 1, by dP / da = ∫ (log t - ψ(a)) p(t) dt over the t on one side of x: that on which
    the density falls. With t = x exp(±s) the integrand falls as exp(-|a - x| s - x s² / 2)."""
    digits, count = (40.0, 36) if a.dtype is float64 else (20.0, 18)
    off = x - a
    upper = off > 0
    sign = where(upper, full_like(x, 1), full_like(x, -1))
    slope = off * sign
    # Where the exponent is about -digits. Below x, s - 1 + exp(-s) >= s² / (2 + 2 s / 3).
    square = where(upper, x * 0.5, x * 0.5 + slope / 3)
    linear = where(upper, slope, slope - digits / 3)
    end = (sqrt(linear * linear + square * (4 * digits)) - linear) / (square * 2)
    # log x - ψ(a), without the difference of large numbers.
    inverse = 1 / a
    gap = where(
        a > 16,
        inverse * (inverse * (1 / 12 - inverse * inverse / 120) + 0.5),
        log(a) - digamma(a),
    )
    lead = where(a > 16, log1p(off * inverse), log_x - log(a)) + gap
    total = full_like(x, 0)
    nodes, weights = np.polynomial.legendre.leggauss(count)
    for node, weight in zip(nodes, weights):
        s = sign * end * float((node + 1) / 2)
        total = total + (lead + s) * exp(a * s - x * expm1(s)) * float(weight / 2)
    return sign * end * total
