"""Programs as users write them: policies, variational inference, mixtures."""

from __future__ import annotations

import pytest

import tilewright as torch
from tilewright import nn
from tilewright.distributions import (
    Categorical,
    MixtureSameFamily,
    Normal,
    biject_to,
    constraints,
    kl_divergence,
)

pytestmark = pytest.mark.computes


def test_reinforce() -> None:
    torch.manual_seed(0)
    policy = nn.Linear(2, 3)
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.1)
    state = torch.randn(64, 2)
    best = (state[:, 0] > 0).long()
    for _ in range(60):
        choice = Categorical(logits=policy(state))
        action = choice.sample()
        reward = (action == best).float()
        loss = -(choice.log_prob(action) * (reward - reward.mean())).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert (policy(state).argmax(-1) == best).float().mean().item() > 0.85


def test_variational_inference_of_a_normal_mean() -> None:
    """The posterior of a conjugate model is known."""
    torch.manual_seed(1)
    data = 1.5 + torch.randn(20)
    loc = torch.zeros((), requires_grad=True)
    log_scale = torch.zeros((), requires_grad=True)
    optimizer = torch.optim.Adam([loc, log_scale], lr=0.05)
    prior = Normal(0.0, 2.0)
    for _ in range(300):
        posterior = Normal(loc, log_scale.exp())
        z = posterior.rsample((32,))
        likelihood = Normal(z.unsqueeze(-1), 1.0).log_prob(data).sum(-1).mean()
        loss = kl_divergence(posterior, prior) - likelihood
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    precision = 20 + 1 / 4
    assert loc.item() == pytest.approx(data.sum().item() / precision, abs=0.08)
    assert log_scale.exp().item() == pytest.approx(precision**-0.5, rel=0.2)


def test_mixture_fit() -> None:
    torch.manual_seed(2)
    data = torch.cat([torch.randn(200) * 0.5 - 2, torch.randn(200) + 3])
    weights = torch.zeros(2, requires_grad=True)
    loc = torch.tensor([-1.0, 1.0], requires_grad=True)
    free = torch.zeros(2, requires_grad=True)
    optimizer = torch.optim.Adam([weights, loc, free], lr=0.05)
    for _ in range(150):
        scale = biject_to(constraints.positive)(free)
        mixture = MixtureSameFamily(Categorical(logits=weights), Normal(loc, scale))
        loss = -mixture.log_prob(data).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loc.tolist() == pytest.approx([-2, 3], abs=0.3)
    assert free.exp().tolist() == pytest.approx([0.5, 1.0], abs=0.2)
