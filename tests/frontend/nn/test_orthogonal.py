"""Orthogonal weights, spectral norm as a hook, and values assigned to parametrized weights."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import nn
from tilewright.nn.utils import parametrizations, parametrize

pytestmark = pytest.mark.computes


@pytest.mark.torch
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
def test_steps_of_orthogonal_weights_are_pytorchs(torch: Any, shape: Any, kind: str) -> None:
    n, k = max(shape), min(shape)
    tall = np.linalg.qr(np.random.default_rng(0).standard_normal((n, k)))[0]
    start = tall if shape == (n, k) else tall.T
    found = []
    for lib in (tw, torch):
        known = importlib.import_module(f"{lib.__name__}.nn.utils.parametrizations")
        layer = lib.nn.Linear(shape[1], shape[0]).double()
        known.orthogonal(layer, "weight", kind)
        layer.weight = lib.tensor(start)
        np.testing.assert_allclose(layer.weight.detach().numpy(), start, 0, 1e-12)
        costs = lib.arange(float(n * k), dtype=lib.float64)
        (layer.weight * costs.reshape(shape)).sum().backward()
        lib.optim.SGD(layer.parameters(), lr=0.01).step()
        weight = layer.weight.detach().numpy()
        square = weight.T @ weight if shape == (n, k) else weight @ weight.T
        np.testing.assert_allclose(square, np.eye(k), 0, 1e-12)
        found.append(weight)
    if n == k:  # else the other columns of the base are random
        np.testing.assert_allclose(*found, 1e-9, 1e-9)


def test_a_weight_made_orthogonal_and_errors() -> None:
    layer = nn.Linear(3, 5)
    parametrizations.orthogonal(layer, use_trivialization=False)
    with tw.no_grad():
        assert tw.allclose(layer.weight.mT @ layer.weight, tw.eye(3), atol=1e-5)
    other = nn.Linear(4, 4)
    parametrizations.orthogonal(other, orthogonal_map="cayley", use_trivialization=False)
    with pytest.raises(NotImplementedError, match="It is not possible to assign"):
        other.weight = tw.eye(4)
    with pytest.raises(ValueError, match="Expected a matrix"):
        parametrizations.orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        parametrizations.orthogonal(nn.Linear(2, 2), orthogonal_map="qr")

    class Double(nn.Module):
        def forward(self, x: Any) -> Any:
            return 2 * x

    layer = nn.Linear(2, 2)
    parametrize.register_parametrization(layer, "weight", Double())
    with pytest.raises(RuntimeError, match="Double does not implement right_inverse"):
        layer.weight = tw.eye(2)


def test_spectral_norm_as_a_hook() -> None:
    from tilewright.nn.utils import remove_spectral_norm, spectral_norm

    layer = spectral_norm(nn.Linear(3, 4))
    assert sorted(layer.state_dict()) == ["bias", "weight_orig", "weight_u", "weight_v"]
    for _ in range(40):
        layer(tw.ones(1, 3))
    largest = np.linalg.svd(layer.weight_orig.detach().numpy())[1][0]
    expected = layer.weight_orig.detach().numpy() / largest
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, 1e-4, 1e-4)
    layer(tw.ones(1, 3)).sum().backward()
    assert layer.weight_orig.grad is not None
    with pytest.raises(RuntimeError, match="Cannot register two"):
        spectral_norm(layer)
    assert sorted(remove_spectral_norm(layer).state_dict()) == ["bias", "weight"]
    with pytest.raises(ValueError, match="not found"):
        remove_spectral_norm(layer)
