"""nn.utils.prune against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw
from tilewright.nn.utils import prune


def pruned(m, steps):
    """Names, values, masks and gradients of a model after pruning steps (method, arguments)."""
    import importlib

    of = importlib.import_module(f"{m.__name__}.nn.utils.prune")
    model = m.nn.Sequential(m.nn.Conv2d(2, 4, 3), m.nn.Flatten(), m.nn.Linear(36, 3))
    with m.no_grad():
        for i, p in enumerate(model.parameters()):
            drawn = np.random.default_rng(i).normal(size=tuple(p.shape))
            p.copy_(m.tensor(drawn.astype(np.float32)))
    for name, *arguments in steps:
        if name == "global_unstructured":
            pairs = [(model[0], "weight"), (model[2], "weight")]
            of.global_unstructured(pairs, pruning_method=of.L1Unstructured, amount=arguments[0])
        elif name == "custom_from_mask":
            mask = m.tensor(np.random.default_rng(7).integers(0, 2, (4, 2, 3, 3)))
            of.custom_from_mask(model[0], "weight", mask)
        elif name == "remove":
            of.remove(model[0], "weight")
        else:
            getattr(of, name)(model[0], "weight", *arguments)
    x = m.tensor(np.random.default_rng(8).normal(size=(2, 2, 5, 5)).astype(np.float32))
    y = model(x)
    (y * y).sum().backward()
    grads = [p.grad for p in model.parameters()]
    values = [y, *model.state_dict().values(), *grads]
    return list(model.state_dict()), [np.asarray(v.detach().numpy()) for v in values], of, model


STEPS = [
    [("l1_unstructured", 0.3)],
    [("l1_unstructured", 10), ("l1_unstructured", 0.5)],
    [("ln_structured", 0.5, 2, 0)],
    [("ln_structured", 1, 1, 1), ("l1_unstructured", 0.3), ("ln_structured", 1, 2, 0)],
    [("custom_from_mask",), ("l1_unstructured", 5)],
    [("identity",)],
    [("global_unstructured", 0.4)],
    [("l1_unstructured", 0.2), ("global_unstructured", 20)],
    [("l1_unstructured", 0.3), ("remove",)],
]


@pytest.mark.parametrize("steps", STEPS, ids=lambda s: "-".join(n for n, *_ in s))
def test_pruning_is_pytorchs(torch, steps):
    names, ours, of, model = pruned(tw, steps)
    wanted, theirs, oracle, other = pruned(torch, steps)
    assert names == wanted and of.is_pruned(model) == oracle.is_pruned(other)
    for a, b in zip(ours, theirs, strict=True):
        # Elements are sums of terms as large as the largest ones, in float32: both frameworks are
        # 1.2e-4 from float64 where those are 700.
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6 * max(100, np.abs(b).max()))


def test_random_pruning_leaves_what_it_should():
    layer = prune.random_unstructured(tw.nn.Linear(8, 6), "weight", 0.25)
    assert int((layer.weight_mask == 0).sum()) == 12
    prune.random_structured(layer, "weight", 2, 0)
    assert int((layer.weight_mask.sum(1) == 0).sum()) == 2
    assert len(next(iter(layer._forward_pre_hooks.values()))) == 2


def test_what_cannot_be_pruned():
    layer = tw.nn.Linear(3, 2)
    with pytest.raises(ValueError, match="should either be a float"):
        prune.l1_unstructured(layer, "weight", 1.5)
    with pytest.raises(TypeError, match="Invalid type for amount"):
        prune.l1_unstructured(layer, "weight", "all")
    with pytest.raises(ValueError, match="smaller than the number"):
        prune.l1_unstructured(tw.nn.Linear(3, 2), "weight", 7)
    with pytest.raises(ValueError, match="multidimensional"):
        prune.ln_structured(tw.nn.Linear(3, 2), "bias", 1, 2, 0)
    with pytest.raises(ValueError, match="has to be pruned before"):
        prune.remove(layer, "weight")
