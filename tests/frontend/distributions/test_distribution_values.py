"""Densities, moments and the like of all distributions, beside PyTorch's."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from distribution_cases import CASES, MADE, MATRIX_CASES, Case

import tilewright as tw
import tilewright.distributions
from tilewright.runtime import tiers

pytestmark = [
    pytest.mark.computes,
    pytest.mark.filterwarnings("ignore:Singular sample detected"),  # PyTorch says so of all
]

ALL = [*CASES, *MATRIX_CASES]
BETTER = {("Kumaraswamy", "mode"), ("Weibull", "mode")}
"""What PyTorch gets wrong: NaN where there is a mode, or a mode of a density without one."""
ROUGH = {"VonMises": 1e-5}
"""PyTorch's Bessel functions are of float32."""
PROPERTIES = ("mean", "variance", "stddev", "mode")
FLAGS = ("batch_shape", "event_shape", "has_rsample", "has_enumerate_support")


def outcome(f: Any, *args: Any) -> Any:
    """The result of a call, or the class of its error."""
    try:
        return f(*args)
    except (NotImplementedError, ValueError, AttributeError, RuntimeError) as error:
        return type(error)


def array(t: Any) -> np.ndarray:
    return np.asarray(t.detach().tolist())


def same(ours: Any, theirs: Any, rtol: float = 1e-9, about: str = "") -> None:
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours is theirs, about
        return
    assert tuple(ours.shape) == tuple(theirs.shape), about
    assert str(ours.dtype) == str(theirs.dtype), about
    rtol, atol = (2e-5, 1e-5) if str(ours.dtype) == "torch.float32" else (rtol, 1e-11)
    np.testing.assert_allclose(array(ours), array(theirs), rtol, atol, err_msg=about)


def same_gradients(ours: Any, theirs: Any, a: Any, b: Any, about: str, rtol: float = 1e-7) -> None:
    """Compare the gradients of a result by the parameters."""
    if isinstance(theirs, type) or not theirs.requires_grad:
        return
    for t in (*a.values(), *b.values()):
        t.grad = None
    ours.sum().backward(retain_graph=True)
    theirs.sum().backward(retain_graph=True)
    for name in b:
        want, got = b[name].grad, a[name].grad
        if want is None:
            assert got is None or not np.any(array(got)), f"{about} by {name}"
        else:
            assert got is not None, f"{about} by {name}"
            rtol, atol = (1e-4, 1e-4) if str(want.dtype) == "torch.float32" else (rtol, 1e-9)
            got, want = array(got), array(want)
            if name == "scale_tril":  # what is above the diagonal has no part in the factor
                got, want = np.tril(got), np.tril(want)
            keep = ~np.isnan(want)  # PyTorch's formulas divide zero by zero at edges
            np.testing.assert_allclose(
                got[keep], want[keep], rtol, atol, err_msg=f"{about} by {name}"
            )


def values_of(theirs: Any, torch: Any) -> Any:
    """Values that a distribution of PyTorch's has."""
    torch.manual_seed(3)
    values = theirs.sample((4,))
    if not theirs.support.is_discrete and theirs.support.event_dim == 0:
        low, high = 1e-3, 1 - 1e-3
        if type(theirs).__name__ in ("Beta", "ContinuousBernoulli", "Kumaraswamy"):
            values = values.clamp(low, high)
    return values


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_moments(case: Case, torch: Any) -> None:
    ours, a = case.make(tw)
    theirs, b = case.make(torch)
    for name in FLAGS:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert repr(ours) == repr(theirs)
    for name in PROPERTIES:
        if (case.name, name) in BETTER:
            continue
        got, want = (outcome(getattr, d, name) for d in (ours, theirs))
        same(got, want, ROUGH.get(case.name, 1e-8), name)
        finite = not isinstance(want, type) and bool(torch.isfinite(want).all())
        if finite:
            same_gradients(got, want, a, b, name, ROUGH.get(case.name, 1e-7))


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_log_prob(case: Case, torch: Any) -> None:
    ours, a = case.make(tw)
    theirs, b = case.make(torch)
    values = values_of(theirs, torch)
    x = tw.tensor(values.numpy())
    got, want = ours.log_prob(x), theirs.log_prob(values)
    same(got, want, ROUGH.get(case.name, 1e-8))
    same_gradients(got, want, a, b, "log_prob", ROUGH.get(case.name, 1e-7))


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_log_prob_by_value(case: Case, torch: Any) -> None:
    ours, _ = case.make(tw)
    theirs, _ = case.make(torch)
    if theirs.support.is_discrete:
        pytest.skip("values are discrete")
    values = values_of(theirs, torch).requires_grad_()
    x = tw.tensor(values.detach().numpy(), requires_grad=True)
    ours.log_prob(x).sum().backward()
    theirs.log_prob(values).sum().backward()
    assert (x.grad is None) == (values.grad is None)
    if x.grad is not None:
        rtol, atol = (1e-4, 1e-4) if case.dtype == "float32" else (1e-7, 1e-9)
        np.testing.assert_allclose(array(x.grad), array(values.grad), rtol, atol)


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_entropy(case: Case, torch: Any) -> None:
    ours, a = case.make(tw)
    theirs, b = case.make(torch)
    got, want = outcome(ours.entropy), outcome(theirs.entropy)
    same(got, want, 1e-7)  # PyTorch has parts of some in float32
    same_gradients(got, want, a, b, "entropy")
    same(outcome(ours.perplexity), outcome(theirs.perplexity), 1e-6)


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_cdf_and_its_inverse(case: Case, torch: Any) -> None:
    ours, a = case.make(tw)
    theirs, b = case.make(torch)
    values = values_of(theirs, torch)
    got, want = outcome(ours.cdf, tw.tensor(values.numpy())), outcome(theirs.cdf, values)
    same(got, want, 1e-8)
    if case.name not in ("Gamma", "Chi2", "InverseGamma"):  # PyTorch has no derivative of igamma
        same_gradients(got, want, a, b, "cdf")
    shape = theirs.batch_shape + theirs.event_shape
    chances = torch.linspace(0.05, 0.95, 5, dtype=getattr(torch, case.dtype))
    chances = chances.reshape(-1, *[1] * len(shape)).expand(5, *shape)
    got = outcome(ours.icdf, tw.tensor(chances.numpy()))
    want = outcome(theirs.icdf, chances)
    same(got, want, 1e-8)
    same_gradients(got, want, a, b, "icdf")


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_support(case: Case, torch: Any) -> None:
    ours, _ = case.make(tw)
    theirs, _ = case.make(torch)
    assert (ours.support.is_discrete, ours.support.event_dim) == (
        theirs.support.is_discrete, theirs.support.event_dim
    )  # fmt: skip
    assert type(ours.support).__name__ == type(theirs.support).__name__
    for expand in (True, False):
        got = outcome(ours.enumerate_support, expand)
        same(got, outcome(theirs.enumerate_support, expand))
    constraints = [
        {k: type(c).__name__ for k, c in d.arg_constraints.items()} for d in (ours, theirs)
    ]
    assert constraints[0] == constraints[1]


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_expand(case: Case, torch: Any) -> None:
    ours, _ = case.make(tw)
    theirs, _ = case.make(torch)
    shape = (5, 1, *theirs.batch_shape)
    a, b = ours.expand(shape), theirs.expand(shape)
    assert type(a) is type(ours)
    assert (a.batch_shape, a.event_shape) == (b.batch_shape, b.event_shape)
    values = values_of(theirs, torch)[:1]
    values = values.expand(5, *values.shape) if values.dim() else values
    same(a.log_prob(tw.tensor(values.numpy())), b.log_prob(values), ROUGH.get(case.name, 1e-8))
    for name in PROPERTIES:
        if (case.name, name) not in BETTER:
            got, want = outcome(getattr, a, name), outcome(getattr, b, name)
            same(got, want, ROUGH.get(case.name, 1e-8), name)
    assert a.sample((2,)).shape == b.sample((2,)).shape


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_shapes_and_dtypes_of_samples(
    case: Case, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    # No compiler decides on them: `make test-fused` need not compile each shape.
    monkeypatch.setattr(tiers, "mode", tiers.AUTO)
    ours, _ = case.make(tw)
    theirs, _ = case.make(torch)
    tw.manual_seed(0)
    for shape in ((), (3,), (2, 1)):
        a, b = ours.sample(shape), theirs.sample(shape)
        assert a.shape == b.shape and str(a.dtype) == str(b.dtype) and not a.requires_grad
        assert bool(ours.support.check(a).all())
        assert type(outcome(ours.rsample, shape)) is type(outcome(theirs.rsample, shape)) or (
            ours.has_rsample and ours.rsample(shape).requires_grad
        )


@pytest.mark.parametrize("name", MADE)
def test_distributions_made_of_others(name: str, torch: Any) -> None:
    ours, theirs = MADE[name](tw), MADE[name](torch)
    for flag in FLAGS:
        assert getattr(ours, flag) == getattr(theirs, flag), flag
    assert repr(ours) == repr(theirs)
    for each in PROPERTIES:
        same(outcome(getattr, ours, each), outcome(getattr, theirs, each), 1e-8, each)
    torch.manual_seed(0)
    values = theirs.sample((4,))
    x = tw.tensor(values.numpy())
    same(ours.log_prob(x), theirs.log_prob(values), 1e-8)
    same(outcome(ours.entropy), outcome(theirs.entropy), 1e-8)
    same(outcome(ours.cdf, x), outcome(theirs.cdf, values), 1e-8)
    if not theirs.event_shape:
        chances = torch.full(theirs.batch_shape, 0.3, dtype=torch.float64)
        got = outcome(ours.icdf, tw.tensor(chances.numpy()))
        same(got, outcome(theirs.icdf, chances), 1e-8)
    assert ours.sample((2, 3)).shape == theirs.sample((2, 3)).shape
    shape = (4, *theirs.batch_shape)
    a, b = ours.expand(shape), theirs.expand(shape)
    assert (a.batch_shape, a.event_shape) == (b.batch_shape, b.event_shape)
    same(a.log_prob(x), b.log_prob(values), 1e-8)
    assert type(ours.support).__name__ == type(theirs.support).__name__


def test_numbers_as_parameters(torch: Any) -> None:
    for m in (tw, torch):
        d = m.distributions
        made = d.Normal(0.0, 1.0)
        assert made.batch_shape == () and made.log_prob(m.tensor(0.5)).dtype is m.float32
        assert d.Normal(m.zeros(2, dtype=m.float64), 1).scale.dtype is m.float64
        assert d.Bernoulli(0.3).probs.shape == ()
        assert str(d.Normal(0.0, 1.0)) == "Normal(loc: 0.0, scale: 1.0)"


def test_modes_are_where_the_density_is_largest() -> None:
    d = tw.distributions
    for made, at in (
        (d.Kumaraswamy(tw.tensor(4.0), tw.tensor(3.1)), (4 - 1) / (4 * 3.1 - 1)),
        (d.Weibull(tw.tensor(2.0), tw.tensor(3.0)), (2 / 3) * 8),
    ):
        power = 4.0 if isinstance(made, d.Kumaraswamy) else 3.0
        assert made.mode.item() == pytest.approx(at ** (1 / power), rel=1e-5)
        x = tw.linspace(0.8, 1.2, 201) * made.mode
        assert made.log_prob(x).argmax().item() == 100
    assert d.Weibull(1.0, 0.5).mode.item() == 0


def test_half_types(torch: Any) -> None:
    for name in ("float16", "bfloat16"):
        got, want = (
            m.distributions.Normal(m.tensor([0.5, -1.0], dtype=getattr(m, name)), 2.0).log_prob(
                m.tensor([0.25, 3.0], dtype=getattr(m, name))
            )
            for m in (tw, torch)
        )
        np.testing.assert_allclose(array(got.float()), array(want.float()), 2e-2)


def test_every_name_of_pytorch(torch: Any) -> None:
    assert set(torch.distributions.__all__) <= set(dir(tw.distributions))
    for module in (
        "bernoulli beta binomial categorical cauchy chi2 constraint_registry constraints "
        "continuous_bernoulli dirichlet distribution exp_family exponential fishersnedecor gamma "
        "generalized_pareto geometric gumbel half_cauchy half_normal independent inverse_gamma kl "
        "kumaraswamy laplace lkj_cholesky log_normal logistic_normal lowrank_multivariate_normal "
        "mixture_same_family multinomial multivariate_normal negative_binomial normal "
        "one_hot_categorical pareto poisson relaxed_bernoulli relaxed_categorical studentT "
        "transformed_distribution transforms uniform utils von_mises weibull wishart"
    ).split():
        import importlib

        theirs = importlib.import_module(f"torch.distributions.{module}")
        ours = importlib.import_module(f"tilewright.distributions.{module}")
        missing = {n for n in getattr(theirs, "__all__", ()) if not hasattr(ours, n)}
        assert not missing, module


def test_lazy_room(run_python: Any) -> None:
    """`import tilewright` doesn't load the room; naming it does."""
    code = (
        "import sys, tilewright as t; print('tilewright.distributions' in sys.modules); "
        "t.distributions.Normal; print('scipy' in sys.modules)"
    )
    assert run_python(code).split() == ["False", "False"]


def test_sample_n_warns() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert tilewright.distributions.Normal(0.0, 1.0).sample_n(3).shape == (3,)
    assert any("sample_n" in str(w.message) for w in caught)
