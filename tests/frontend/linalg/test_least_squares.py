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
