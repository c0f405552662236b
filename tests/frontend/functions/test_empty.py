"""Tensors without elements, or with few: what is made of them, against PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [pytest.mark.computes, pytest.mark.torch]
SHAPES = [(0,), (0, 3), (3, 0), (1, 0), (1,), (1, 5), (2, 5)]
FUNCTIONS: dict[str, Callable[[Any, Any], Any]] = {
    "logsumexp": lambda t, x: t.logsumexp(x, 0),
    "logsumexp of all": lambda t, x: t.logsumexp(x, tuple(range(x.dim()))),
    "median": lambda t, x: t.median(x),
    "nanmedian": lambda t, x: t.nanmedian(x),
    "diff": lambda t, x: t.diff(x),
    "diff twice": lambda t, x: t.diff(x, n=2, dim=0),
    "chunk": lambda t, x: t.chunk(x, 3),
    "cov": lambda t, x: t.cov(x),
    "cov, corrected by 3": lambda t, x: t.cov(x, correction=3),
    "corrcoef": lambda t, x: t.corrcoef(x),
    "histc": lambda t, x: t.histc(x, 3),
}


@pytest.fixture(params=["cpu", pytest.param("interpret", marks=pytest.mark.triton)])
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.filterwarnings("ignore:cov.*degrees of freedom is <= 0")
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_in_pytorch(torch: Any, device: str, name: str) -> None:
    for shape in SHAPES:
        array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape) ** 2
        expected = FUNCTIONS[name](torch, torch.tensor(array))
        found = FUNCTIONS[name](tw, tw.tensor(array).to(device))
        pair = (expected, found) if isinstance(expected, tuple) else ((expected,), (found,))
        assert len(pair[0]) == len(pair[1]), shape
        for theirs, ours in zip(*pair):
            assert tuple(theirs.shape) == tuple(ours.shape), shape
            np.testing.assert_allclose(ours.cpu().numpy(), theirs.numpy(), rtol=1e-5, atol=1e-6)


def test_what_has_no_answer() -> None:
    for shape in ((0,), (3, 0)):
        with pytest.raises(RuntimeError, match=r"quantile\(\) input tensor must be non-empty"):
            tw.quantile(tw.zeros(shape), 0.5)
    with pytest.raises(IndexError, match="expected a dimension with elements"):
        tw.median(tw.zeros(0, 3), 0)


@pytest.mark.parametrize("row", ["-inf -inf", "inf 1", "-inf 1", "nan 1", "inf inf", "-inf inf"])
def test_logsumexp_of_infinities(torch: Any, row: str) -> None:
    """Values and gradients."""
    numbers = [float(x) for x in row.split()]
    ours, theirs = (t.tensor([numbers], requires_grad=True) for t in (tw, torch))
    for x in (ours, theirs):
        x.logsumexp(1).sum().backward()
    np.testing.assert_array_equal(
        ours.logsumexp(1).detach().numpy(), theirs.logsumexp(1).detach().numpy()
    )
    np.testing.assert_array_equal(ours.grad.numpy(), theirs.grad.numpy())
