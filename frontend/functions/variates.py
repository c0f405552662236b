"""Random tensors of distributions that need a rejection: gamma, Dirichlet, Poisson, binomial.

Samplers are of bounded length and elementwise, as in `ir/ops/gamma.py`: so they fuse, and one seed
gives the same numbers in every run.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented
from tilewright.ir.ops.gamma import each, first_of
from tilewright.ir.shape import broadcast

from .. import recording
from ..recording import record
from ..recording.builders import builder
from .call import public
from .generator import Generator, draw
from .limits import finfo
from .promotion import to

if TYPE_CHECKING:
    from .._tensor import Tensor

# ---- gamma -----------------------------------------------------------------------------------


@builder("_standard_gamma")
def _gamma(seed: Node, offset: Node, alpha: Node) -> Node:
    return ops.gamma_sample(alpha, seed, offset, False)


def _standard_gamma(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Gamma numbers of the shapes in `input` and of rate 1, differentiable by the shape."""
    return record(_gamma, *draw(generator, input._typed()[2]), input)


@builder("_sample_dirichlet")
def _dirichlet(seed: Node, offset: Node, alpha: Node) -> Node:
    # Of logarithms: the numbers themselves underflow for small concentrations. What underflows then
    # becomes the least number above 0, and what is all, the largest below 1: neither has a finite
    # log_prob.
    shares = ops.softmax(ops.gamma_sample(alpha, seed, offset, True), alpha.rank - 1)
    limits = finfo(shares.dtype)
    least, most = (ops.full_like(shares, n) for n in (limits.tiny, 1 - limits.eps / 2))
    return ops.with_value(shares, ops.minimum(ops.maximum(ops.detach(shares), least), most))


def _sample_dirichlet(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Vectors of the Dirichlet distributions whose concentrations are the rows of `input`,
    differentiable by them."""
    return record(_dirichlet, *draw(generator, input._typed()[2]), input)


# ---- counts ----------------------------------------------------------------------------------

_LARGE = 10
"""Distributions of counts of a smaller mean are inverted, those of a larger one are rejected."""
_TERMS = 40
"""Counts of mean 10 that are larger have a probability of 1e-11."""
_ROUNDS = 12
"""A round is accepted with probability 0.8 or more."""


def _inverted(u: Node, first: Node, ratio: Any) -> Node:
    """The least k with u < P(X <= k), where P(0) is `first` and P(k) / P(k - 1) is ratio(k)."""
    chance, below = first, first
    count = ops.full_like(u, 0)
    for k in range(1, _TERMS):
        count = count + to(u >= below, u.dtype)
        chance = chance * ratio(k)
        below = below + chance
    return count


def _poisson(seed: Node, offset: Node, rate: Node) -> Node:
    """Hörmann, "The transformed rejection method for generating Poisson random variables" (PTRS),
    1993, for large rates."""
    dtype = rate.dtype
    rate = to(ops.detach(rate), dtypes.accumulator(dtype))
    u, centred, v = _parts(seed, offset, rate)
    is_small = rate < _LARGE
    small = ops.where(is_small, rate, ops.full_like(rate, 1))
    few = _inverted(u, ops.exp(-small), lambda k: small * (1 / k))
    mu = ops.where(is_small, ops.full_like(rate, _LARGE), rate)
    log_mu = ops.log(mu)
    b = ops.sqrt(mu) * 2.53 + 0.931
    a = b * 0.02483 - 0.059
    inverse = 1.1239 + 1.1328 / (b - 3.4)
    high = 0.9277 - 3.6224 / (b - 2)
    side = 0.5 - ops.abs(centred)
    k = ops.floor((a * 2 / side + b) * centred + mu + 0.43)
    density = k * log_mu - mu - ops.lgamma(k + 1)
    fine = _accepted(side, v, k >= 0, high, inverse, a, b, density)
    many = first_of(list(zip(each(fine), each(k))), ops.floor(mu))
    return to(ops.where(is_small, few, many), dtype)


def _parts(seed: Node, offset: Node, like: Node) -> tuple[Node, Node, Node]:
    """Draws: one uniform, and for each round one in [-0.5, 0.5) and one in (0, 1]."""
    u = ops.uniform(seed, offset, (1 + 2 * _ROUNDS, *like.shape), like.dtype)
    one = each(ops.slice_axis(u, 0, 0, 1))[0]
    rounds = ops.slice_axis(u, 0, 1, 1 + _ROUNDS)
    return one, rounds - 0.5, 1 - ops.slice_axis(u, 0, 1 + _ROUNDS, 1 + 2 * _ROUNDS)


def _accepted(
    side: Node, v: Node, inside: Node, high: Node, inverse: Node, a: Node, b: Node, density: Node
) -> Node:
    """Hörmann's test: in the centre at once, else by the density."""
    at_once = ops.bitwise_and(side >= 0.07, v <= high)
    small = ops.full_like(side, 1e-6)
    square = ops.maximum(side, small)
    exact = ops.log(v * inverse / (a / (square * square) + b)) <= density
    return ops.bitwise_and(inside, ops.bitwise_or(at_once, exact))


def _nonnegative(x: Node, failure: str) -> Node:
    return ops.require(x >= 0, failure)


def _float(name: str, t: Any) -> None:
    if not t.dtype.is_floating_point:
        raise not_implemented(name, t.dtype)


@public("poisson", _poisson, method=False)
def poisson(input: Tensor, generator: Generator | None = None) -> Tensor:
    """Poisson numbers of the rates in `input`, of its dtype. RuntimeError for a negative rate."""
    _float("poisson_cpu", input)
    drawn = draw(generator, input._typed()[2])
    recording.fallible_node_of(_nonnegative, input, "poisson")
    return record(_poisson, *drawn, input)


def _binomial(seed: Node, offset: Node, count: Node, prob: Node) -> Node:
    """Hörmann, "The generation of binomial random variates" (BTRS), 1993, for large means."""
    dtype = prob.dtype
    count, prob = (to(ops.detach(x), dtypes.accumulator(dtype)) for x in (count, prob))
    shape = broadcast(count.shape, prob.shape)
    count, prob = ops.expand(count, shape), ops.expand(prob, shape)
    u, centred, v = _parts(seed, offset, prob)
    # The rarer of the two outcomes is counted.
    is_rare = prob <= 0.5
    p = ops.where(is_rare, prob, 1 - prob)
    odds = p / (1 - p)
    mean = count * p
    is_small = mean < _LARGE
    n = ops.where(is_small, count, ops.full_like(p, 2 * _LARGE))
    q = ops.where(is_small, p, ops.full_like(p, 0))
    ratio = ops.where(is_small, odds, ops.full_like(p, 0))
    zero = ops.full_like(p, 0)
    few = _inverted(
        u,
        ops.exp(n * ops.log1p(-q)),
        lambda k: ops.maximum((n - (k - 1)) * ratio * (1 / k), zero),
    )
    n = ops.where(is_small, ops.full_like(p, 4 * _LARGE), count)
    p = ops.where(is_small, ops.full_like(p, 0.5), p)
    r = p / (1 - p)
    deviation = ops.sqrt(n * p * (1 - p))
    b = deviation * 2.53 + 1.15
    a = b * 0.0248 + p * 0.01 - 0.0873
    c = n * p + 0.5
    high = 0.92 - 4.2 / b
    inverse = (2.83 + 5.1 / b) * deviation
    m = ops.floor((n + 1) * p)
    side = 0.5 - ops.abs(centred)
    k = ops.floor((a * 2 / side + b) * centred + c)
    inside = ops.bitwise_and(k >= 0, k <= n)
    k = ops.where(inside, k, m)
    density = (
        ops.lgamma(m + 1)
        + ops.lgamma(n - m + 1)
        - ops.lgamma(k + 1)
        - ops.lgamma(n - k + 1)
        + (k - m) * ops.log(r)
    )
    fine = _accepted(side, v, inside, high, inverse, a, b, density)
    many = first_of(list(zip(each(fine), each(k))), m)
    found = ops.where(is_small, few, many)
    return to(ops.where(is_rare, found, count - found), dtype)


@public("binomial", _binomial, method=False)
def binomial(count: Tensor, prob: Tensor, generator: Generator | None = None) -> Tensor:
    """The numbers of successes among `count` trials of probability `prob`, of the dtype of `prob`.
    Both are float tensors that broadcast."""
    _float("binomial_cpu", count)
    _float("binomial_cpu", prob)
    drawn = draw(generator, prob._typed()[2])
    recording.fallible_node_of(_nonnegative, count, "binomial count")
    recording.fallible_node_of(ops.within_unit, prob, "binomial prob")
    return record(_binomial, *drawn, count, prob)


# ---- angles ----------------------------------------------------------------------------------

_ANGLES = 24
"""A round is accepted with probability 0.65 or more: all fail once in 10^11 elements."""


@builder("von_mises")
def _von_mises(seed: Node, offset: Node, k: Node) -> Node:
    """Best and Fisher, "Efficient simulation of the von Mises distribution", 1979."""
    dtype = k.dtype
    k = to(ops.detach(k), dtypes.float64)
    u = ops.uniform(seed, offset, (1 + 2 * _ANGLES, *k.shape), dtypes.accumulator(dtype))
    u = to(u, k.dtype)
    tau = ops.sqrt(k * k * 4 + 1) + 1
    rho = (tau - ops.sqrt(tau * 2)) / (k * 2)
    # For small concentrations the formula takes a difference of nearly equal numbers.
    r = ops.where(k < 1e-5, 1 / k + k, (rho * rho + 1) / (rho * 2))
    z = ops.cos(ops.slice_axis(u, 0, 1, 1 + _ANGLES) * math.pi)
    f = (r * z + 1) / (r + z)
    c = k * (r - f)
    v = 1 - ops.slice_axis(u, 0, 1 + _ANGLES, 1 + 2 * _ANGLES)
    fine = ops.bitwise_or(c * (2 - c) > v, ops.log(c / v) + 1 - c >= 0)
    f = first_of(list(zip(each(fine), each(f))), ops.full_like(k, 1))
    one = ops.full_like(f, 1)
    off = ops.acos(ops.minimum(ops.maximum(f, -one), one))
    half = each(ops.slice_axis(u, 0, 0, 1))[0]
    return to(ops.where(half < 0.5, -off, off), dtype)


def von_mises(concentration: Tensor) -> Tensor:
    """Angles around 0 of the von Mises distributions of these concentrations."""
    return record(_von_mises, *draw(None, concentration._typed()[2]), concentration)
