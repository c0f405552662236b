"""Checks of parameters and values: what they say, when they say it, what they cost."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw
import tilewright.distributions as d
from tilewright.recording import epoch

pytestmark = pytest.mark.computes

BAD = [
    lambda m, d: d.Normal(m.tensor([1.0, -1.0]), m.tensor([-1.0, 1.0])),
    lambda m, d: d.Normal(0.0, 1.0).log_prob(m.tensor(float("nan"))),
    lambda m, d: d.Normal(0.0, 1.0).log_prob("a"),
    lambda m, d: d.Normal(0.0, 1.0).log_prob(1.0),
    lambda m, d: d.Bernoulli(0.3).log_prob(m.tensor(2.0)),
    lambda m, d: d.Normal(m.zeros(2), m.ones(2)).log_prob(m.zeros(3)),
    lambda m, d: d.Categorical(m.tensor([0.5, -0.5])),
    lambda m, d: d.Categorical(),
    lambda m, d: d.Categorical(m.ones(2), m.ones(2)),
    lambda m, d: d.Categorical(probs=m.tensor(0.5)),
    lambda m, d: d.Categorical(logits=m.tensor(0.5)),
    lambda m, d: d.Categorical(m.ones(3)).log_prob(m.tensor(3)),
    lambda m, d: d.Bernoulli(),
    lambda m, d: d.Bernoulli(2.0),
    lambda m, d: d.Bernoulli(0.5, 0.5),
    lambda m, d: d.Uniform(1.0, 0.0),
    lambda m, d: d.Uniform(m.tensor([1.0]), m.tensor([1.0])),
    lambda m, d: d.Normal("a", 1.0),
    lambda m, d: d.Geometric(0.0),
    lambda m, d: d.Geometric(m.tensor([0.0, 0.5])),
    lambda m, d: d.Dirichlet(m.tensor(1.0)),
    lambda m, d: d.Dirichlet(m.tensor([-1.0, 1.0])),
    lambda m, d: d.Dirichlet(m.ones(3)).log_prob(m.ones(2)),
    lambda m, d: d.Dirichlet(m.ones(3)).log_prob(m.tensor(2.0)),
    lambda m, d: d.Beta(m.tensor(-1.0), 1.0),
    lambda m, d: d.LogNormal(0.0, -1.0),
    lambda m, d: d.Chi2(m.tensor([-1.0])),
    lambda m, d: d.MultivariateNormal(m.zeros(2)),
    lambda m, d: d.MultivariateNormal(m.tensor(1.0), m.eye(2)),
    lambda m, d: d.MultivariateNormal(m.zeros(2), m.ones(2)),
    lambda m, d: d.MultivariateNormal(m.zeros(2), m.tensor([[1.0, 2.0], [2.0, 1.0]])),
    lambda m, d: d.LowRankMultivariateNormal(m.zeros(2), m.ones(2), m.ones(2)),
    lambda m, d: d.LowRankMultivariateNormal(m.zeros(2), m.ones(3, 1), m.ones(2)),
    lambda m, d: d.LowRankMultivariateNormal(m.zeros(2), m.ones(2, 1), m.ones(3)),
    lambda m, d: d.LKJCholesky(1),
    lambda m, d: d.Wishart(m.tensor(1.0), m.eye(2)),
    lambda m, d: d.MixtureSameFamily(d.Normal(0.0, 1.0), d.Normal(0.0, 1.0)),
    lambda m, d: d.MixtureSameFamily(d.Categorical(m.ones(2)), d.Normal(m.zeros(3), 1.0)),
    lambda m, d: d.MixtureSameFamily(d.Categorical(m.ones(2)), 3),
    lambda m, d: d.Distribution.set_default_validate_args(3),
    lambda m, d: d.Normal(m.zeros(2), 1.0).log_prob(m.zeros(3, 3)),
    lambda m, d: d.RelaxedBernoulli(m.tensor(1.0), m.tensor(1.5)),
    lambda m, d: d.VonMises(m.tensor(1.0), m.tensor(-1.0)),
]


@pytest.mark.parametrize("make", BAD, ids=range(len(BAD)))
def test_the_error_is_pytorchs(make: Any, torch: Any) -> None:
    torch.distributions.Distribution.set_default_validate_args(True)  # its compiler turns it off
    with pytest.raises(ValueError) as theirs:
        make(torch, torch.distributions)
    with pytest.raises(ValueError) as ours:
        make(tw, d)
    text = str(theirs.value)
    assert str(ours.value).startswith(text), f"{ours.value}\n----\n{text}"


def test_without_validation() -> None:
    assert d.Normal(0.0, -1.0, validate_args=False).scale.item() == -1
    try:
        d.Distribution.set_default_validate_args(False)
        assert d.Normal(0.0, -1.0).log_prob(tw.tensor(0.0)).isnan()
        with pytest.raises(ValueError, match="scale"):
            d.Normal(0.0, -1.0, validate_args=True)
    finally:
        d.Distribution.set_default_validate_args(True)


def flushes(program: Any) -> int:
    """How many epochs a program ends."""
    tw.zeros(1).tolist()
    before = epoch.clock.number
    program()
    return epoch.clock.number - before


def test_checks_end_no_epoch() -> None:
    loc, scale = tw.zeros(3, requires_grad=True), tw.ones(3, requires_grad=True)
    data, net = tw.randn(8, 3), tw.nn.Linear(3, 3)
    float(data.sum())

    def leaves() -> None:
        made = d.Normal(loc, scale)
        made.log_prob(data)
        d.Normal(loc, scale).expand((2, 3))

    def middle_of_a_step() -> None:
        hidden = net(data)
        posterior = d.Normal(hidden, hidden.exp())
        z = posterior.rsample()
        prior = d.Normal(tw.zeros_like(z), tw.ones_like(z))
        (prior.log_prob(z) - posterior.log_prob(z)).mean()
        d.kl_divergence(posterior, prior)

    def small_values() -> None:
        d.Normal(tw.zeros(3), tw.ones(3) * 2 + 1)
        d.Categorical(tw.ones(3)).log_prob(tw.tensor([0, 1, 2]))

    for program in (leaves, middle_of_a_step, small_values):
        assert flushes(program) == 0


def test_values_of_a_step_are_checked_when_they_are_computed() -> None:
    x = tw.tensor([-1.0, 2.0], requires_grad=True)
    made = d.Normal(0.0, x * 3)
    density = made.log_prob(tw.tensor([0.5, 0.5]))
    with pytest.raises(ValueError, match=r"Expected parameter scale \(Tensor of shape \(2,\)\)"):
        density.sum().item()
    y = tw.tensor([float("nan")], requires_grad=True)
    later = d.Normal(0.0, 1.0).log_prob(y * 2)
    with pytest.raises(ValueError, match="Expected value argument"):
        later.tolist()


def test_checks_of_values_that_were_written() -> None:
    scale = tw.ones(2)
    d.Normal(0.0, scale)
    scale.mul_(-1)
    with pytest.raises(ValueError, match="scale"):
        d.Normal(0.0, scale)
    part = tw.tensor([[1.0, -1.0], [1.0, 1.0]])
    d.Normal(0.0, part[1])
    d.Normal(0.0, part[:, 0])
    for bad in (part[0], part[:, 1], part.T[1]):
        with pytest.raises(ValueError, match="scale"):
            d.Normal(0.0, bad)
    leaf = tw.tensor([1.0, 2.0], requires_grad=True)
    d.Normal(0.0, leaf)
    with tw.no_grad():
        leaf -= 1.5
    with pytest.raises(ValueError, match="scale"):
        d.Normal(0.0, leaf)


def test_op_by_op_the_error_is_raised_at_the_call(run_python: Any) -> None:
    code = """
        import tilewright as torch
        x = torch.tensor([-1.0], requires_grad=True)
        try:
            torch.distributions.Normal(0.0, x * 2)
        except ValueError as error:
            print("at the call")
    """
    import textwrap

    assert run_python(textwrap.dedent(code), env={"TW_EAGER": "1"}).strip() == "at the call"


def test_distributions_without_constraints() -> None:
    class Mine(d.Distribution):
        def log_prob(self, value: Any) -> Any:
            self._validate_sample(value)
            return value

    with pytest.warns(UserWarning, match="does not define `arg_constraints`"):
        made = Mine()
    with pytest.warns(UserWarning, match="does not define `support`"):
        made.log_prob(tw.tensor(1.0))


def test_subclasses_need_their_own_expand() -> None:
    class Shifted(d.Normal):
        def __init__(self, loc: Any):
            super().__init__(loc, 1.0)

    class Same(d.Normal):
        pass

    assert type(Same(0.0, 1.0).expand((2,))) is Same
    with pytest.raises(NotImplementedError, match="must also define a custom"):
        Shifted(0.0).expand((2,))
