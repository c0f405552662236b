"""torch.linalg.lstsq beside PyTorch: drivers, batches that broadcast, vectors, gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

SIZES = [
    ((1, 4, 9), (2, 4, 3)),
    ((3, 1, 9, 4), (1, 2, 9, 3)),
    ((2, 9, 4), (1, 9, 3)),
    ((2, 9, 4), (2, 9)),
    ((9, 4), (9,)),
    ((0, 9, 4), (1, 9, 3)),
]


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize(("a", "b"), SIZES, ids=str)
def test_batches_broadcast(a: Any, b: Any, driver: str, torch: Any) -> None:
    """Ranks and singular values are of the matrices as they came."""
    rng = np.random.default_rng(0)
    left, right = rng.normal(size=a), rng.normal(size=b)

    def run(T: Any) -> Any:
        x, y = (T.tensor(v, requires_grad=True) for v in (left, right))
        found = T.linalg.lstsq(x, y, driver=driver)
        found.solution.square().sum().backward()
        return [*found, x.grad, y.grad]

    for ours, theirs in zip(run(tw), run(torch), strict=True):
        assert tuple(ours.shape) == tuple(theirs.shape)
        np.testing.assert_allclose(
            ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-8, atol=1e-10
        )


@pytest.mark.parametrize("driver", ["gels", "gelsy", "gelsd", "gelss"])
@pytest.mark.parametrize("shape", [(3, 2), (2, 3), (2, 2)], ids=str)
@pytest.mark.filterwarnings("ignore:Casting complex values")  # PyTorch's
def test_complex_matrices(shape: tuple[int, int], driver: str, torch: Any) -> None:
    """Residuals and singular values are real, also where there are none."""
    rng = np.random.default_rng(0)
    a = rng.normal(size=shape) + 1j * rng.normal(size=shape)
    b = rng.normal(size=(shape[0], 2)) + 1j * rng.normal(size=(shape[0], 2))
    found = [T.linalg.lstsq(T.tensor(a), T.tensor(b), driver=driver) for T in (tw, torch)]
    for ours, theirs in zip(*found, strict=True):
        assert ours.numpy().dtype == theirs.numpy().dtype
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-8, atol=1e-10)
