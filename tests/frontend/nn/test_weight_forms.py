"""Weights in other forms: weight norm, spectral norm, and layers that are folded into others."""

from __future__ import annotations

import numpy as np
import pytest
from oracle import close

import tilewright as tw


def normed(m, how):
    """Names, values and gradients of a layer with weight norm, before and after a step."""
    nn = m.nn
    layer = nn.Linear(3, 4) if how == "linear" else nn.Conv1d(3, 4, 3)
    with m.no_grad():
        for i, p in enumerate(layer.parameters()):
            drawn = np.random.default_rng(i).normal(size=tuple(p.shape))
            p.copy_(m.tensor(drawn.astype(np.float32)))
    if how == "old":
        with pytest.warns(FutureWarning, match="weight_norm` is deprecated"):
            nn.utils.weight_norm(layer)
    else:
        nn.utils.parametrizations.weight_norm(layer, dim=None if how == "all" else 0)
    shape = (2, 3) if how == "linear" else (2, 3, 5)
    x = m.tensor(np.random.default_rng(9).normal(size=shape).astype(np.float32))
    y = layer(x)
    (y**2).sum().backward()
    names = list(layer.state_dict())
    out = [y.detach(), *(p.grad for p in layer.parameters())]
    m.optim.SGD(layer.parameters(), lr=0.01).step()
    out.append(layer(x).detach())
    if how == "old":
        nn.utils.remove_weight_norm(layer)
    else:
        nn.utils.parametrize.remove_parametrizations(layer, "weight")
    out.append(layer(x).detach())
    return names, sorted(layer.state_dict()), [np.asarray(v.numpy()) for v in out]


@pytest.mark.parametrize("how", ["old", "new", "all", "linear"])
def test_weight_norm_is_pytorchs(torch, how):
    import torch.nn.utils.parametrizations

    ours, theirs = normed(tw, how), normed(torch, how)
    assert ours[:2] == theirs[:2]
    for a, b in zip(ours[2], theirs[2], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_weight_norm_is_there_once():
    layer = tw.nn.Linear(2, 2)
    with pytest.raises(ValueError, match="not found"):
        tw.nn.utils.remove_weight_norm(layer)
    with pytest.warns(FutureWarning), pytest.raises(RuntimeError, match="two weight_norm hooks"):
        tw.nn.utils.weight_norm(tw.nn.utils.weight_norm(layer))


def test_spectral_norm_is_pytorchs(torch):
    from torch.nn.utils import parametrizations

    theirs, ours = torch.nn.Conv2d(3, 4, 2), tw.nn.Conv2d(3, 4, 2)
    ours.load_state_dict({k: tw.tensor(v.detach().numpy()) for k, v in theirs.state_dict().items()})
    parametrizations.spectral_norm(theirs)
    tw.nn.utils.parametrizations.spectral_norm(ours)
    state = theirs.state_dict()
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict({k: tw.tensor(v.numpy()) for k, v in state.items()})
    for training in (True, False):
        ours.train(training), theirs.train(training)
        x = np.random.default_rng(0).normal(size=(1, 3, 4, 4)).astype(np.float32)
        ours.zero_grad(), theirs.zero_grad()
        a, b = ours(tw.tensor(x)), theirs(torch.tensor(x))
        close(a.detach().numpy(), b.detach().numpy())
        (a**2).sum().backward(), (b**2).sum().backward()
        for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
            np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-4)
    largest = np.linalg.svd(ours.weight.detach().numpy().reshape(4, -1), compute_uv=False)[0]
    assert abs(largest - 1) < 0.1


def test_batch_norms_are_folded(torch):
    for name, pair, shape in (
        ("fuse_conv_bn_eval", lambda m: (m.nn.Conv2d(3, 4, 3), m.nn.BatchNorm2d(4)), (2, 3, 5, 5)),
        ("fuse_linear_bn_eval", lambda m: (m.nn.Linear(3, 4), m.nn.BatchNorm1d(4)), (2, 3)),
    ):
        layer, norm = pair(tw)
        with pytest.raises(AssertionError, match="Fusion only for eval"):
            getattr(tw.nn.utils, name)(layer, norm)
        norm.running_mean.uniform_()
        norm.running_var.uniform_(1, 2)
        layer.eval(), norm.eval()
        x = tw.randn(*shape)
        made = getattr(tw.nn.utils, name)(layer, norm)
        np.testing.assert_allclose(
            made(x).detach().numpy(), norm(layer(x)).detach().numpy(), rtol=1e-4, atol=1e-5
        )
        assert [type(p).__name__ for p in made.parameters()] == ["Parameter"] * 2


def test_a_cached_parametrization_is_computed_once():
    calls = []

    class Twice(tw.nn.Module):
        def forward(self, x):
            calls.append(1)
            return x * 2

    layer = tw.nn.Linear(2, 2)
    tw.nn.utils.parametrize.register_parametrization(layer, "weight", Twice())
    calls.clear()
    with tw.nn.utils.parametrize.cached():
        assert layer.weight is layer.weight
    assert len(calls) == 1 and layer.weight is not layer.weight
    assert tw.nn.utils.parametrize.type_before_parametrizations(layer) is tw.nn.Linear


def test_skip_init():
    layer = tw.nn.utils.skip_init(tw.nn.Linear, 3, 4, bias=False)
    assert tuple(layer.weight.shape) == (4, 3) and layer.bias is None
    with pytest.raises(RuntimeError, match="device"):
        tw.nn.utils.skip_init(tw.nn.ReLU)


@pytest.mark.parametrize(
    ("forward", "inverse"),
    [
        (lambda w: w[:2], None),
        (lambda w: w.double(), None),
        (lambda w: 3, None),
        (lambda w: w, lambda w: w[:2]),
        (lambda w: w, lambda w: w.double()),
        (lambda w: w, lambda w: 3),
    ],
)
def test_parametrizations_that_are_refused(torch, forward, inverse):
    texts = []
    for m in (tw, torch):
        methods = {"forward": staticmethod(forward)}
        if inverse is not None:
            methods["right_inverse"] = staticmethod(inverse)
        form = type("Form", (m.nn.Module,), methods)()
        with pytest.raises(ValueError, match=r".") as refused:
            m.nn.utils.parametrize.register_parametrization(m.nn.Linear(3, 3), "weight", form)
        texts.append(str(refused.value))
    ours, theirs = texts
    assert ours.startswith(theirs)


@pytest.mark.filterwarnings("ignore:.*weight_norm` is deprecated")
@pytest.mark.torch
def test_old_states_of_weight_norm_load(torch):
    for m in (tw, torch):
        old = m.nn.utils.weight_norm(m.nn.Linear(3, 4))
        new = m.nn.utils.parametrizations.weight_norm(m.nn.Linear(3, 4))
        new.load_state_dict(old.state_dict())
        assert new(m.ones(3)).tolist() == pytest.approx(old(m.ones(3)).tolist())


def test_spectral_norm_of_complex_weights():
    rng = np.random.default_rng(0)
    weight = (rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4))).astype(np.complex64)
    layer = tw.nn.Linear(4, 3, dtype=tw.complex64)
    layer.weight = tw.nn.Parameter(tw.tensor(weight))
    tw.nn.utils.parametrizations.spectral_norm(layer, n_power_iterations=50)
    np.testing.assert_allclose(
        layer.weight.detach().numpy(), weight / np.linalg.norm(weight, 2), rtol=2e-4
    )


@pytest.mark.torch
def test_a_second_parametrization_keeps_what_is_trained(torch):
    def seen(m):
        class Shift(m.nn.Module):
            def forward(self, x):
                return x + 1

            def right_inverse(self, x):
                return x - 1

        layer = m.nn.Linear(2, 1, bias=False).eval()
        layer.weight = m.nn.Parameter(m.tensor([[1.0, 2.0]]))
        m.nn.utils.parametrize.register_parametrization(layer, "weight", Shift())
        first = layer.weight.tolist()
        m.nn.utils.parametrize.register_parametrization(layer, "weight", Shift().train())
        chain = layer.parametrizations.weight
        return first, layer.weight.tolist(), chain.original.tolist(), [s.training for s in chain]

    assert seen(tw) == seen(torch)
