"""Grids of the identity, as spatial transformers begin with: their positions lie on elements, where
the derivative depends on the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("size", [2, 7, 12, 28])
def test_gradients_of_the_identity(torch: Any, size: int, aligned: bool) -> None:
    image = np.random.RandomState(size).rand(2, 1, size, size).astype("f")
    found = []
    for m in (tw, torch):
        theta = m.eye(2, 3).repeat(2, 1, 1).requires_grad_()
        grid = m.nn.functional.affine_grid(theta, (2, 1, size, size), align_corners=aligned)
        out = m.nn.functional.grid_sample(m.tensor(image), grid, align_corners=aligned)
        (out * m.arange(float(size))).sum().backward()
        found.append((grid.detach().numpy(), theta.grad.numpy()))
    np.testing.assert_allclose(found[0][0], found[1][0], rtol=0, atol=6e-8)
    largest = np.abs(found[1][1]).max()
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=0, atol=2e-6 * largest)
