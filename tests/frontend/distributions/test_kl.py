"""KL divergences of all pairs that PyTorch has, beside PyTorch's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from distribution_cases import CASES, MATRIX_CASES, Case

import tilewright as tw
from tilewright.distributions import kl

pytestmark = pytest.mark.computes

BY_NAME = {case.name: case for case in reversed([*CASES, *MATRIX_CASES])}
OTHER = {
    "Bernoulli": {"probs": [[0.5, 0.4, 0.1], [0.3, 0.35, 0.8]]},
    "Beta": {"concentration1": 2.5, "concentration0": [0.5, 3.0, 1.0]},
    "Categorical": {"probs": [0.5, 0.1, 0.4]},
    "ContinuousBernoulli": {"probs": [[0.6, 0.4, 0.1], [0.3, 0.35, 0.8]]},
    "Dirichlet": {"concentration": [2.0, 0.3, 1.1]},
    "Gumbel": {"loc": 0.7, "scale": [2.0, 5.0, 3.0]},
    "OneHotCategorical": {"probs": [0.5, 0.1, 0.4]},
    "Pareto": {"scale": 0.2, "alpha": [2.5, 1.5, 3.5]},
    "Uniform": {"low": -5.0, "high": [[10.0, 20.0, 30.0], [15.0, 25.0, 35.0]]},
    "Binomial": {"probs": [[0.5, 0.4, 0.1], [0.3, 0.35, 0.8]]},
    "Normal": {"loc": 0.3, "scale": [2.0, 0.7, 1.0]},
}
PAIRS = [
    *((name, name) for name in (
        "Bernoulli Beta Binomial Categorical Cauchy ContinuousBernoulli Dirichlet Exponential "
        "Gamma Geometric Gumbel HalfNormal Laplace LogNormal Normal OneHotCategorical Pareto "
        "Poisson Uniform "
        "MultivariateNormal LowRankMultivariateNormal Wishart"
    ).split()),
    *(tuple(pair.split("-")) for pair in (
        "Bernoulli-Poisson Beta-ContinuousBernoulli Beta-Pareto Beta-Exponential Beta-Gamma "
        "Beta-Normal Beta-Uniform ContinuousBernoulli-Pareto ContinuousBernoulli-Exponential "
        "ContinuousBernoulli-Normal ContinuousBernoulli-Uniform Exponential-Uniform "
        "Exponential-Pareto Exponential-ContinuousBernoulli Exponential-Beta Exponential-Gamma "
        "Exponential-Gumbel Exponential-Normal Gamma-Uniform Gamma-Pareto "
        "Gamma-ContinuousBernoulli Gamma-Beta Gamma-Exponential Gamma-Gumbel Gamma-Normal "
        "Gumbel-Uniform Gumbel-Pareto Gumbel-Gamma Gumbel-Exponential Gumbel-ContinuousBernoulli "
        "Gumbel-Beta Gumbel-Normal Laplace-Uniform Laplace-Pareto Laplace-Gamma "
        "Laplace-Exponential Laplace-ContinuousBernoulli Laplace-Beta Laplace-Normal "
        "Normal-Uniform Normal-Pareto Normal-Gamma Normal-Exponential Normal-ContinuousBernoulli "
        "Normal-Beta Normal-Gumbel Normal-Laplace Pareto-Uniform Pareto-ContinuousBernoulli "
        "Pareto-Beta Pareto-Exponential Pareto-Gamma Pareto-Normal Poisson-Binomial "
        "MultivariateNormal-LowRankMultivariateNormal LowRankMultivariateNormal-MultivariateNormal "
        "Poisson-Bernoulli Uniform-Beta Uniform-ContinuousBernoulli Uniform-Exponential "
        "Uniform-Gamma Uniform-Gumbel Uniform-Normal Uniform-Pareto"
    ).split()),
]  # fmt: skip
UNIT = Case("Uniform", {"low": [[0.1, 0.2, 0.3], [0.3, 0.0, 0.5]], "high": [0.5, 0.9, 1.0]})


def array(t: Any) -> np.ndarray:
    return np.asarray(t.detach().tolist())


def _second(name: str) -> Case:
    first = BY_NAME[name]
    return first._replace(tensors=OTHER.get(name, first.tensors))


def compare(first: Case, second: Case, torch: Any, rtol: float = 1e-8) -> None:
    (p, a), (q, b) = first.make(tw), second.make(tw)
    (tp, ta), (tq, tb) = first.make(torch), second.make(torch)
    got, want = tw.distributions.kl_divergence(p, q), torch.distributions.kl_divergence(tp, tq)
    assert tuple(got.shape) == tuple(want.shape)
    np.testing.assert_allclose(array(got), array(want), rtol, 1e-10)
    if not want.requires_grad or not bool(torch.isfinite(want).all()):
        return
    got.sum().backward()
    want.sum().backward()
    for ours, theirs in ((a, ta), (b, tb)):
        for name, t in theirs.items():
            if t.grad is not None:
                keep = ~np.isnan(array(t.grad))  # PyTorch takes the logarithm of a zero end
                got, want = array(ours[name].grad)[keep], array(t.grad)[keep]
                np.testing.assert_allclose(got, want, 1e-6, 1e-9)


@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_pairs(pair: tuple[str, str], torch: Any) -> None:
    compare(BY_NAME[pair[0]], _second(pair[1]), torch)


@pytest.mark.parametrize("name", ["Beta", "Exponential", "Gamma", "Gumbel", "Normal", "Pareto"])
def test_uniform_inside_the_unit_interval(name: str, torch: Any) -> None:
    compare(UNIT, _second(name), torch)


def test_all_pairs_are_registered(torch: Any) -> None:
    tw.distributions.kl_divergence(*[tw.distributions.Normal(0.0, 1.0)] * 2)
    names = {(a.__name__, b.__name__) for a, b in kl._KL_REGISTRY}
    assert {(a.__name__, b.__name__) for a, b in torch.distributions.kl._KL_REGISTRY} <= names


def test_made_of_others(torch: Any) -> None:
    results = []
    for m in (tw, torch):
        d = m.distributions
        x = m.tensor([[0.5, 1.0], [2.0, 0.1]])
        pairs = [
            (d.Independent(d.Normal(x, x), 1), d.Independent(d.Normal(0.3 * x, 1.0), 1)),
            (
                d.TransformedDistribution(d.Normal(x, x), [d.ExpTransform()]),
                d.TransformedDistribution(d.Normal(0.3 * x, 1.0), [d.ExpTransform()]),
            ),
            (d.Chi2(x), d.Gamma(2 * x, x)),
            (d.LogisticNormal(x, x), d.LogisticNormal(0 * x, x + 1)),
        ]
        results.append([array(d.kl_divergence(*pair)) for pair in pairs])
    for got, want in zip(*results):
        np.testing.assert_allclose(got, want, 1e-5)


def test_support_that_is_not_covered(torch: Any) -> None:
    for m in (tw, torch):
        d, t = m.distributions, m.tensor
        for p, q in (
            (d.Uniform(t([0.0]), t([2.0])), d.Uniform(t([0.5]), t([3.0]))),
            (d.Bernoulli(t([0.5])), d.Bernoulli(t([0.0]))),
            (d.Categorical(t([[0.5, 0.5]])), d.Categorical(t([[1.0, 0.0]]))),
            (d.Pareto(t([1.0]), t([2.0])), d.Pareto(t([2.0]), t([2.0]))),
            (d.Uniform(t([-1.0]), t([2.0])), d.Gamma(t([0.5]), t([3.0]))),
        ):
            assert d.kl_divergence(p, q).tolist() == [float("inf")]
        zero = d.kl_divergence(d.Bernoulli(t([0.0, 1.0])), d.Bernoulli(t([0.5, 0.5])))
        assert zero.tolist() == pytest.approx([0.6931472] * 2)


def test_registering() -> None:
    class A(tw.distributions.Normal):
        pass

    class B(tw.distributions.Normal):
        pass

    p, q = A(0.0, 1.0), B(1.0, 1.0)
    assert tw.distributions.kl_divergence(p, q).item() == 0.5  # as normal distributions
    try:
        kl.register_kl(A, B)(lambda p, q: "both")
        assert tw.distributions.kl_divergence(p, q) == "both"
        kl.register_kl(A, tw.distributions.Distribution)(lambda p, q: "left")
        kl.register_kl(tw.distributions.Normal, B)(lambda p, q: "right")
        assert tw.distributions.kl_divergence(p, q) == "both"
        del kl._KL_REGISTRY[A, B]
        kl._chosen.clear()
        with pytest.warns(RuntimeWarning, match="Ambiguous"):
            assert tw.distributions.kl_divergence(p, q) == "left"
    finally:
        for pair in [pair for pair in kl._KL_REGISTRY if A in pair or B in pair]:
            del kl._KL_REGISTRY[pair]
        kl._chosen.clear()
    with pytest.raises(TypeError, match="issubclass"):
        kl.register_kl(3, 4)  # type: ignore[arg-type]
    with pytest.raises(NotImplementedError):
        tw.distributions.kl_divergence(p, tw.distributions.Poisson(1.0))
    with pytest.raises(NotImplementedError, match="No KL"):
        tw.distributions.kl_divergence(tw.distributions.StudentT(1.0), p)
