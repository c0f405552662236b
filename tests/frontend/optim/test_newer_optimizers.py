"""Adafactor, Muon and SparseAdam against PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

import tilewright as tw

MIXED, MATRICES = [(4, 6), (5,), (2, 3, 4)], [(4, 6), (6, 3)]


def trained(m, name, options, shapes, dtype, steps=4):
    rng = np.random.default_rng(0)
    params = [m.tensor(rng.normal(size=s).astype(dtype), requires_grad=True) for s in shapes]
    optimizer = getattr(m.optim, name)(params, **options)
    for _ in range(steps):
        optimizer.zero_grad()
        sum((p * p * p).sum() + p.sum() for p in params).backward()
        optimizer.step()
    return [p.detach().numpy() for p in params], optimizer


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "options",
    [{}, {"lr": 0.1, "weight_decay": 0.1, "d": 2.0, "maximize": True}, {"eps": (1e-3, 1e-2)}],
    ids=str,
)
def test_adafactor_is_pytorchs(torch, options, dtype):
    ours, mine = trained(tw, "Adafactor", options, MIXED, dtype)
    theirs, yours = trained(torch, "Adafactor", options, MIXED, dtype)
    tolerance = 1e-5 if dtype == "float32" else 1e-12
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    for a, b in zip(mine.state.values(), yours.state.values(), strict=True):
        assert set(a) == set(b)
        for name in set(a) - {"step"}:
            np.testing.assert_allclose(a[name].numpy(), b[name].numpy(), rtol=10 * tolerance)


@pytest.mark.parametrize(
    "options",
    [{"lr": 0.1}, {"lr": 0.1, "nesterov": False, "adjust_lr_fn": "match_rms_adamw"}],
    ids=str,
)
def test_muon_is_pytorchs(torch, options):
    ours, _ = trained(tw, "Muon", options, MATRICES, "float32")
    theirs, _ = trained(torch, "Muon", options, MATRICES, "float32")
    for a, b in zip(ours, theirs, strict=True):
        # The iteration rounds to bfloat16, PyTorch after other operations: a few of its ulps of the
        # four steps of length 0.1.
        np.testing.assert_allclose(a, b, atol=0.02)


def test_what_they_refuse():
    matrix, vector = tw.zeros(2, 2, requires_grad=True), tw.zeros(2, requires_grad=True)
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        tw.optim.Muon([matrix, vector])
    with pytest.raises(ValueError, match="is not supported"):
        tw.optim.Muon([matrix], adjust_lr_fn="mean")
    with pytest.raises(ValueError, match="Clipping threshold"):
        tw.optim.Adafactor([matrix], d=0.5)
    optimizer = tw.optim.SparseAdam([vector])
    vector.sum().backward()
    with pytest.raises(RuntimeError, match="does not support dense gradients"):
        optimizer.step()
