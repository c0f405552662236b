"""Samples: their distribution, beside SciPy's, and the gradients of those that have one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tilewright as tw
import tilewright.distributions as d

pytestmark = pytest.mark.computes
stats = pytest.importorskip("scipy.stats")
special = pytest.importorskip("scipy.special")

COUNT = 20_000
LEVEL = 1e-4
"""A right sampler fails a test with this probability; seeds are fixed, so it doesn't."""

CONTINUOUS = {
    "Normal": (d.Normal, (1.5, 0.7), lambda a, b: stats.norm(a, b)),
    "Laplace": (d.Laplace, (1.5, 0.7), lambda a, b: stats.laplace(a, b)),
    "Cauchy": (d.Cauchy, (1.5, 0.7), lambda a, b: stats.cauchy(a, b)),
    "Gumbel": (d.Gumbel, (1.5, 0.7), lambda a, b: stats.gumbel_r(a, b)),
    "Uniform": (d.Uniform, (-1.0, 2.5), lambda a, b: stats.uniform(a, b - a)),
    "Exponential": (d.Exponential, (0.4,), lambda a: stats.expon(scale=1 / a)),
    "Gamma": (d.Gamma, (2.5, 0.7), lambda a, b: stats.gamma(a, scale=1 / b)),
    "Gamma small": (d.Gamma, (0.2, 3.0), lambda a, b: stats.gamma(a, scale=1 / b)),
    "Gamma of one": (d.Gamma, (1.0, 1.0), lambda a, b: stats.gamma(a, scale=1 / b)),
    "Gamma large": (d.Gamma, (500.0, 1.0), lambda a, b: stats.gamma(a, scale=1 / b)),
    "Chi2": (d.Chi2, (3.0,), stats.chi2),
    "Beta": (d.Beta, (2.5, 0.7), stats.beta),
    "Beta small": (d.Beta, (0.1, 0.3), stats.beta),
    "StudentT": (d.StudentT, (3.5, 1.0, 2.0), stats.t),
    "FisherSnedecor": (d.FisherSnedecor, (5.0, 7.0), stats.f),
    "HalfNormal": (d.HalfNormal, (0.7,), lambda a: stats.halfnorm(scale=a)),
    "HalfCauchy": (d.HalfCauchy, (0.7,), lambda a: stats.halfcauchy(scale=a)),
    "InverseGamma": (d.InverseGamma, (2.5, 0.7), lambda a, b: stats.invgamma(a, scale=b)),
    "LogNormal": (d.LogNormal, (0.3, 0.7), lambda a, b: stats.lognorm(b, scale=math.exp(a))),
    "Pareto": (d.Pareto, (0.7, 2.5), lambda a, b: stats.pareto(b, scale=a)),
    "Weibull": (d.Weibull, (0.7, 2.5), lambda a, b: stats.weibull_min(b, scale=a)),
    "GeneralizedPareto": (
        d.GeneralizedPareto,
        (1.0, 0.7, 0.3),
        lambda a, b, c: stats.genpareto(c, a, b),
    ),
    "VonMises": (d.VonMises, (0.5, 2.0), lambda a, b: stats.vonmises(b, loc=a)),
    "VonMises wide": (d.VonMises, (0.0, 0.05), lambda a, b: stats.vonmises(b, loc=a)),
    "VonMises narrow": (d.VonMises, (1.0, 80.0), lambda a, b: stats.vonmises(b, loc=a)),
}

DISCRETE = {
    "Bernoulli": (d.Bernoulli, (0.3,), stats.bernoulli),
    "Binomial few": (lambda p: d.Binomial(6, p), (0.3,), lambda p: stats.binom(6, p)),
    "Binomial many": (lambda p: d.Binomial(200, p), (0.3,), lambda p: stats.binom(200, p)),
    "Binomial likely": (lambda p: d.Binomial(90, p), (0.8,), lambda p: stats.binom(90, p)),
    "Binomial rare": (lambda p: d.Binomial(5000, p), (1e-3,), lambda p: stats.binom(5000, p)),
    "Geometric": (d.Geometric, (0.3,), lambda p: stats.geom(p, loc=-1)),
    "Poisson small": (d.Poisson, (0.7,), stats.poisson),
    "Poisson": (d.Poisson, (9.5,), stats.poisson),
    "Poisson large": (d.Poisson, (10.5,), stats.poisson),
    "Poisson huge": (d.Poisson, (400.0,), stats.poisson),
    "NegativeBinomial": (
        lambda p: d.NegativeBinomial(3.5, p), (0.4,), lambda p: stats.nbinom(3.5, 1 - p)
    ),
}  # fmt: skip


def drawn(make: Any, parameters: Any, dtype: Any = None) -> np.ndarray:
    tw.manual_seed(7)
    made = make(*(tw.tensor(p, dtype=dtype or tw.float64) for p in parameters))
    return np.asarray(made.sample((COUNT,)).tolist())


@pytest.mark.parametrize("name", CONTINUOUS)
@pytest.mark.parametrize("dtype", [tw.float32, tw.float64], ids=str)
def test_continuous(name: str, dtype: Any) -> None:
    make, parameters, oracle = CONTINUOUS[name]
    sample = drawn(make, parameters, dtype)
    if name.startswith("VonMises"):  # SciPy's angles are around the mean
        sample = (sample - parameters[0] + math.pi) % (2 * math.pi) - math.pi + parameters[0]
    assert stats.kstest(sample, oracle(*parameters).cdf).pvalue > LEVEL


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    make, parameters, oracle = DISCRETE[name]
    sample = drawn(make, parameters)
    exact = oracle(*parameters)
    low, high = exact.ppf(0.002), exact.ppf(0.998)
    edges = np.arange(low, high + 1)
    step = max(1, len(edges) // 30)
    edges = np.concatenate([[-np.inf], edges[::step] + 0.5, [np.inf]])
    seen = np.histogram(sample, edges)[0]
    expected = COUNT * np.diff(exact.cdf(edges))
    keep = expected > 4
    chi2 = float((((seen - expected) ** 2 / np.maximum(expected, 1e-9))[keep]).sum())
    assert stats.chi2.sf(chi2, max(1, keep.sum() - 1)) > LEVEL
    assert (sample == np.floor(sample)).all()


def test_counts_at_their_ends() -> None:
    tw.manual_seed(0)
    assert tw.poisson(tw.zeros(50)).tolist() == [0] * 50
    count, prob = tw.tensor([0.0, 5.0, 5.0, 1000.0]), tw.tensor([0.5, 0.0, 1.0, 1.0])
    assert tw.binomial(count, prob).tolist() == [0, 0, 5, 1000]
    with pytest.raises(RuntimeError, match="non-negative"):
        tw.poisson(tw.tensor([-1.0])).tolist()
    with pytest.raises(RuntimeError, match="probabilities"):
        tw.binomial(tw.tensor([1.0]), tw.tensor([1.5])).tolist()


def test_vectors() -> None:
    tw.manual_seed(1)
    a = np.array([0.05, 0.5, 3.0])
    sample = np.asarray(d.Dirichlet(tw.tensor(a)).sample((COUNT,)).tolist())
    assert np.allclose(sample.sum(-1), 1)
    for i in range(3):
        assert stats.kstest(sample[:, i], stats.beta(a[i], a.sum() - a[i]).cdf).pvalue > LEVEL
    p = np.array([0.2, 0.5, 0.3])
    counts = np.asarray(d.Multinomial(10, tw.tensor(p)).sample((4000,)).tolist())
    assert (counts.sum(-1) == 10).all()
    assert np.allclose(counts.mean(0), 10 * p, atol=0.1)
    one_hot = np.asarray(d.OneHotCategorical(tw.tensor(p)).sample((4000,)).tolist())
    assert (one_hot.sum(-1) == 1).all() and np.allclose(one_hot.mean(0), p, atol=0.03)
    classes = np.asarray(d.Categorical(tw.tensor([p, p[::-1].copy()])).sample((4000,)).tolist())
    assert np.allclose([(classes[:, 1] == k).mean() for k in range(3)], p[::-1], atol=0.03)


def test_mixture() -> None:
    tw.manual_seed(2)
    made = d.MixtureSameFamily(
        d.Categorical(tw.tensor([0.3, 0.7])),
        d.Normal(tw.tensor([-2.0, 1.0]), tw.tensor([0.5, 1.0])),
    )
    sample = np.asarray(made.sample((COUNT,)).tolist())

    def cdf(x: Any) -> Any:
        return 0.3 * stats.norm(-2, 0.5).cdf(x) + 0.7 * stats.norm(1, 1).cdf(x)

    assert stats.kstest(sample, cdf).pvalue > LEVEL


REPARAMETERIZED = {
    "Gamma": (lambda p: d.Gamma(p, tw.ones_like(p)), (0.3, 0.9, 2.0, 20.0), lambda p: (p, p**0)),
    "Exponential": (d.Exponential, (0.3, 2.0), lambda p: (1 / p, -(p**-2))),
    "Beta": (
        lambda p: d.Beta(p, tw.full_like(p, 2.0)),
        (0.5, 1.5, 6.0),
        lambda p: (p / (p + 2), 2 / (p + 2) ** 2),
    ),
    "Dirichlet": (
        lambda p: d.Dirichlet(tw.stack([p, tw.full_like(p, 1.5), tw.full_like(p, 0.5)], -1)),
        (0.5, 4.0),
        lambda p: (p / (p + 2), 2 / (p + 2) ** 2),
    ),
    "Chi2": (d.Chi2, (1.5, 6.0), lambda p: (p, p**0)),
    "Weibull": (
        lambda p: d.Weibull(tw.ones_like(p), p),
        (0.9, 2.0),
        lambda p: (
            special.gamma(1 + 1 / p),
            -special.gamma(1 + 1 / p) * special.digamma(1 + 1 / p) / p**2,
        ),
    ),
}


@pytest.mark.parametrize("name", REPARAMETERIZED)
def test_gradients_of_means(name: str) -> None:
    """The mean gradient of samples is the gradient of the mean."""
    make, parameters, exact = REPARAMETERIZED[name]
    tw.manual_seed(11)
    p = tw.tensor(parameters, dtype=tw.float64, requires_grad=True)
    sample = make(p.expand(COUNT, len(parameters))).rsample()
    first = sample[..., 0] if sample.dim() == 3 else sample
    first.mean(0).sum().backward()
    mean, slope = exact(np.asarray(parameters))
    error = 6 * np.asarray(first.detach().std(0).tolist()) / COUNT**0.5
    assert (np.abs(np.asarray(first.detach().mean(0).tolist()) - mean) < error).all()
    np.testing.assert_allclose(p.grad.tolist(), slope, 0.06)


def test_the_gradient_of_gamma_numbers_is_exact() -> None:
    """d x / d alpha at a fixed value of the distribution function, by differences of SciPy's."""
    tw.manual_seed(5)
    shapes = np.repeat([0.02, 0.3, 0.99, 1.0, 2.5, 7.9, 16.1, 60.0, 2e4], 40)
    alpha = tw.tensor(shapes, requires_grad=True)
    x = tw._standard_gamma(alpha)
    x.sum().backward()
    values = np.asarray(x.tolist())
    chance = special.gammainc(shapes, values)
    keep = (values > 1e-30) & (chance > 1e-3) & (chance < 1 - 1e-3)
    assert keep.mean() > 0.9

    def moved(k: int) -> np.ndarray:
        return special.gammaincinv(shapes * (1 + k * 1e-4), chance)

    slope = (8 * (moved(1) - moved(-1)) - (moved(2) - moved(-2))) / (12e-4 * shapes)
    np.testing.assert_allclose(np.asarray(alpha.grad.tolist())[keep], slope[keep], 1e-6)


def test_second_derivatives_of_gamma_numbers() -> None:
    tw.manual_seed(5)
    alpha = tw.tensor([0.5, 1.5, 9.0], dtype=tw.float64, requires_grad=True)
    x = tw._standard_gamma(alpha)
    (slope,) = tw.autograd.grad(x.sum(), alpha, create_graph=True)
    (second,) = tw.autograd.grad(slope.sum(), alpha)
    a, values = np.asarray(alpha.tolist()), np.asarray(x.tolist())
    chance, h = special.gammainc(a, values), 1e-3
    low, mid, high = (special.gammaincinv(a + k * h, chance) for k in (-1, 0, 1))
    np.testing.assert_allclose(second.tolist(), (low - 2 * mid + high) / h**2, 1e-4)


def test_samples_are_replayed() -> None:
    p = tw.tensor([0.3, 2.0, 40.0])
    for draw in (
        lambda: tw._standard_gamma(p),
        lambda: tw.poisson(p),
        lambda: tw.binomial(tw.full((3,), 30.0), p / 50),
        lambda: d.VonMises(p, p).sample(),
        lambda: d.Dirichlet(p).sample(),
    ):
        tw.manual_seed(3)
        first, second = draw().tolist(), draw().tolist()
        tw.manual_seed(3)
        assert [draw().tolist(), draw().tolist()] == [first, second]
        assert first != second


def test_straight_through_gradients() -> None:
    logits = tw.tensor([0.3, -0.2, 1.0], requires_grad=True)
    tw.manual_seed(0)
    sample = d.OneHotCategoricalStraightThrough(logits=logits).rsample()
    weights = tw.tensor([1.0, 2.0, 5.0])
    (sample * weights).sum().backward()
    other = tw.tensor([0.3, -0.2, 1.0], requires_grad=True)
    (other.softmax(-1) * weights).sum().backward()
    np.testing.assert_allclose(logits.grad.tolist(), other.grad.tolist(), 1e-5)
    np.testing.assert_allclose(sorted(sample.tolist()), [0, 0, 1], atol=1e-6)
