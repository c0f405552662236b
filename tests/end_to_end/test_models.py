"""Whole models through the public API: launches, derivatives of derivatives, backends, PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from networks import train, values
from paths import BENCH

import tilewright
import tilewright.nn as nn
import tilewright.nn.functional as F
from tilewright import recording
from tilewright.runtime import tiers

pytestmark = pytest.mark.computes


@pytest.fixture(autouse=True)
def fresh_epoch():
    recording.flush()
    yield
    recording.flush()


def launches_of(function) -> int:
    """Launches of the one plan that computes what `function` returns."""
    recording.flush()
    before = {id(p): p.runs for p in tiers.plans()}
    kept = function()
    recording.flush()
    ran = [p for p in tiers.plans() if p.runs != before.get(id(p), 0)]
    del kept
    return sum(p.launches for p in ran)


DEVICES = ["cpu", pytest.param("interpret", marks=pytest.mark.triton)]


@pytest.mark.parametrize("device", DEVICES)
def test_softmax_and_layer_norm_are_one_kernel_each_way(device, monkeypatch):
    monkeypatch.setattr(tiers, "mode", tiers.FUSED)
    x = tilewright.tensor(values(8, 32), device=device, requires_grad=True)
    g = tilewright.tensor(values(8, 32, seed=1), device=device)
    assert launches_of(lambda: x.softmax(-1).detach()) == 1
    y = x.softmax(-1)
    assert launches_of(lambda: tilewright.autograd.grad(y, x, g)) == 1
    assert launches_of(lambda: F.layer_norm(x, (32,)).detach()) == 1
    z = F.layer_norm(x, (32,))
    recording.flush()
    assert launches_of(lambda: tilewright.autograd.grad(z, x, g)) == 1


@pytest.mark.parametrize("device", DEVICES)
def test_an_mlp_step_with_adam_is_at_most_20_launches(device):
    with tilewright.device(device):
        tilewright.manual_seed(0)
        model = nn.Sequential(
            nn.Linear(20, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 5)
        )
        optimizer = tilewright.optim.Adam(model.parameters())
        x, y = tilewright.tensor(values(16, 20)), tilewright.arange(16) % 5

        def step():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            return loss

        for _ in range(3):
            step()
        assert launches_of(step) <= 20


@pytest.mark.triton
def test_training_gives_the_same_losses_on_every_backend():
    ours, interpreted = train("cpu", 10), train("interpret", 10)
    np.testing.assert_allclose(interpreted, ours, rtol=1e-4)
    assert ours[-1] < ours[0]


@pytest.mark.triton
def test_a_small_gpt_gives_the_same_losses_on_every_backend(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCH))
    import models

    def losses(device: str) -> list[float]:
        tilewright.manual_seed(0)
        sizes = {"layers": 2, "heads": 2, "width": 32, "context": 32, "vocab": 64}
        model = models.gpt(tilewright, **sizes, fused_attention=True).to(device)
        optimizer = tilewright.optim.AdamW(model.parameters(), lr=1e-3)
        x = (tilewright.arange(4 * 32).reshape(4, 32) * 7 % 64).to(device)
        found = []
        for _ in range(3):
            optimizer.zero_grad()
            loss = model(x, (x + 1) % 64)
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    ours = losses("cpu")
    np.testing.assert_allclose(losses("interpret"), ours, rtol=1e-5)
    assert ours[-1] < ours[0]


@pytest.mark.triton
@pytest.mark.slow
def test_every_kernel_of_a_training_step_compiles_for_every_target():
    from tilewright.codegen.schedule import default_schedule
    from tilewright.codegen.target import CUDA
    from tilewright.codegen.triton import emit
    from tilewright.runtime import offline

    train("interpret", 2)
    kernels = [
        step.kernel
        for p in tiers.plans()
        for s in p.segments
        if s.device.name == "interpret"
        for step in s.program.steps
    ]
    emitted = {e.sha: e for e in (emit(k, default_schedule(k, CUDA)) for k in kernels)}
    targets = ("sm_80", "sm_90", "sm_100", "gfx942")
    requests = [offline.request(e, target) for e in emitted.values() for target in targets]
    assert len(requests) >= 40
    for compiled in offline.compile_many(requests):
        assert compiled.binary, f"{compiled.name} for {compiled.target}"


# ---- against PyTorch -------------------------------------------------------------------------


def twins(torch, make):
    """The same module in both frameworks, in float64."""
    theirs, ours = make(torch), make(tilewright)
    state = {k: v.detach().numpy().astype(np.float64) for k, v in theirs.state_dict().items()}
    theirs.double()
    ours.double()
    ours.load_state_dict({k: tilewright.tensor(v) for k, v in state.items()})
    theirs.load_state_dict({k: torch.tensor(v) for k, v in state.items()})
    return ours, theirs


def conv_net(torch):
    n = torch.nn
    return n.Sequential(
        n.Conv2d(2, 4, 3, stride=2, padding=1),
        n.Tanh(),
        n.Conv2d(4, 3, 2),
        n.Flatten(),
        n.Linear(27, 1),
    )


def test_double_backward_through_a_conv_net(torch):
    ours, theirs = twins(torch, conv_net)
    data = values(5, 2, 8, 8).astype(np.float64)

    def second(fw, model):
        x = fw.tensor(data, requires_grad=True)
        (g,) = fw.autograd.grad(model(x).sum(), x, create_graph=True)
        (g**3).sum().backward()
        return [x.grad, *[p.grad for p in model.parameters()]]

    for a, b in zip(second(tilewright, ours), second(torch, theirs), strict=True):
        if a is None or b is None:
            assert a is None and (b is None or not b.any())
            continue
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-9, atol=1e-12)


def test_gradient_penalty(torch):
    ours, theirs = twins(torch, conv_net)
    data = values(4, 2, 8, 8, seed=5).astype(np.float64)

    def penalty(fw, model):
        x = fw.tensor(data, requires_grad=True)
        out = model(x)
        (g,) = fw.autograd.grad(out, x, fw.ones_like(out), create_graph=True)
        loss = ((g.view(4, -1).norm(2, dim=1) - 1) ** 2).mean() - out.mean()
        loss.backward()
        return loss, [p.grad for p in model.parameters()]

    (a, ga), (b, gb) = penalty(tilewright, ours), penalty(torch, theirs)
    np.testing.assert_allclose(a.item(), b.item(), rtol=1e-10)
    for x, y in zip(ga, gb, strict=True):
        np.testing.assert_allclose(x.numpy(), y.numpy(), rtol=1e-8, atol=1e-11)


def test_hessian_vector_product(torch):
    def make(fw):
        n = fw.nn
        return n.Sequential(n.Linear(6, 8), n.GELU(), n.LayerNorm(8), n.Linear(8, 3))

    ours, theirs = twins(torch, make)
    data, target = values(7, 6).astype(np.float64), np.arange(7) % 3
    vectors = [values(*p.shape, seed=i).astype(np.float64) for i, p in enumerate(ours.parameters())]

    def product(fw, model):
        parameters = list(model.parameters())
        loss = fw.nn.functional.cross_entropy(model(fw.tensor(data)), fw.tensor(target))
        grads = fw.autograd.grad(loss, parameters, create_graph=True)
        dot = sum((g * fw.tensor(v)).sum() for g, v in zip(grads, vectors, strict=True))
        return fw.autograd.grad(dot, parameters)

    for a, b in zip(product(tilewright, ours), product(torch, theirs), strict=True):
        np.testing.assert_allclose(a.numpy(), b.numpy(), rtol=1e-8, atol=1e-11)


def test_third_derivative():
    x = tilewright.tensor(np.array([0.3, 1.1]), requires_grad=True)
    y = (x.sin() * x).sum()
    for _ in range(3):
        (y,) = tilewright.autograd.grad(y.sum(), x, create_graph=True)
    v = x.detach().numpy()
    np.testing.assert_allclose(y.detach().numpy(), -3 * np.sin(v) - v * np.cos(v), rtol=1e-12)
