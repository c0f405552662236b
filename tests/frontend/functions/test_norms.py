"""torch.linalg: norms, and products of several matrices, against PyTorch."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.functions import products

RNG = np.random.default_rng(0)
INF = float("inf")


def outcome(torch: Any, call: Any, *arrays: np.ndarray) -> list[Any]:
    """Value and gradients, or the error."""
    tensors = [torch.tensor(a, requires_grad=True) for a in arrays]
    try:
        y = call(torch, *tensors)
    except (RuntimeError, IndexError, TypeError) as error:
        return [type(error)]
    if y.requires_grad:  # not the count of elements
        y.sum().backward()
    grads = [
        np.zeros_like(a) if t.grad is None else t.grad.numpy() for t, a in zip(tensors, arrays)
    ]
    return [y.detach().numpy(), *grads]


def agree(torch: Any, call: Any, *arrays: np.ndarray) -> None:
    ours, theirs = outcome(tw, call, *arrays), outcome(torch, call, *arrays)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        if isinstance(b, type):
            assert a is b
        else:
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-12)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (3, 4, 5)])
def test_norms(torch: Any, shape: tuple[int, ...]) -> None:
    x = RNG.standard_normal(shape)
    dims: list[Any] = [None, 0, -1, (0, 1), (-1, 0), (0, 0), (0, 1, 2)]
    for ord, dim, keepdim in product(
        [None, 0, 1, 2, 2.5, -1, INF, -INF, "fro", "no"], dims, [False, True]
    ):
        if ord == 2 and (isinstance(dim, tuple) or (dim is None and len(shape) == 2)):
            continue  # made of singular values
        agree(torch, lambda t, x: t.linalg.norm(x, ord, dim, keepdim), x)  # noqa: B023
    for ord, dim in product([0, 1, 2, 3.5, -2, INF, -INF], [None, 0, (0,), (0, -1)]):
        if len(shape) > 1 or dim != (0, -1):
            agree(torch, lambda t, x: t.linalg.vector_norm(x, ord, dim), x)  # noqa: B023
    for ord, dim in product(["fro", 1, -1, INF, -INF, 3, "no"], [(-2, -1), (1, 0), (0, 0)]):
        agree(torch, lambda t, x: t.linalg.matrix_norm(x, ord, dim), x)  # noqa: B023


def test_norms_of_odd_tensors(torch: Any) -> None:
    for t in (tw, torch):
        assert t.linalg.norm(t.tensor(-3.0)).item() == 3
        assert t.linalg.vector_norm(t.zeros(0)).item() == 0
        assert t.linalg.norm(t.ones(2, dtype=t.float16), dtype=t.float64).dtype is t.float64
        for call in (
            lambda t=t: t.linalg.norm(t.ones(2, dtype=t.int64)),
            lambda t=t: t.linalg.vector_norm(t.zeros(0), INF),
            lambda t=t: t.linalg.matrix_norm(t.ones(3)),
            lambda t=t: t.linalg.norm(t.ones(2), dtype=t.int64),
        ):
            with pytest.raises(RuntimeError, match="linalg"):
                call()


@pytest.mark.parametrize(
    "shapes",
    [
        [(2, 3), (3, 4)],
        [(10, 100), (100, 5), (5, 50), (50, 3)],
        [(3,), (3, 4), (4,)],
        [(3,), (3,)],
        [(4, 3), (3,)],
        [(0, 3), (3, 2)],
        [(2, 2)],
        [(2, 2), (2,), (2, 2)],
        [(2, 3), (2, 3)],
        [(1, 2, 3), (3, 2)],
    ],
    ids=str,
)
def test_multi_dot(torch: Any, shapes: list[tuple[int, ...]]) -> None:
    arrays = [RNG.standard_normal(s) for s in shapes]
    agree(torch, lambda t, *xs: t.linalg.multi_dot(xs), *arrays)
    if shapes[0] == (10, 100):
        found = tw.chain_matmul(*map(tw.tensor, arrays))
        np.testing.assert_allclose(found.numpy(), np.linalg.multi_dot(arrays))


def test_the_cheapest_order() -> None:
    """Of the book: 6 factors, ((1 (2 3)) ((4 5) 6))."""
    cuts = products._cheapest_cuts([30, 35, 15, 5, 10, 20, 25])
    assert (cuts[0, 5], cuts[0, 2], cuts[3, 5]) == (2, 0, 4)


@pytest.mark.parametrize("p", [2, 1, 3.0, INF])
@pytest.mark.parametrize("dim", [(-2, -1), (0, 2), [0, 1], (1,), -1])
def test_vectors_of_several_dimensions_are_normalized(torch: Any, dim: Any, p: float) -> None:
    x = RNG.standard_normal((2, 3, 4))
    agree(torch, lambda m, t: m.nn.functional.normalize(t, p, dim).square() * t, x)
