"""Corners where a derivative is easily lost: several zeros, crops, results that don't depend on
their input, beside PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes
A = np.random.default_rng(0).normal(size=(4, 4))
INF = float("inf")


def derivatives(
    library: Any, call: Callable[..., Any], array: np.ndarray, twice: bool
) -> list[np.ndarray]:
    """Value, gradient and perhaps the derivative of the gradient, with uneven weights."""
    x = library.tensor(array, requires_grad=True)

    def weighed(t: Any) -> Any:
        line = np.cos(np.arange(t.numel()) * 0.7).reshape(tuple(t.shape))
        return (t * library.tensor(line)).sum()

    y = call(library, x)
    assert y.requires_grad
    g = library.autograd.grad(weighed(y), x, create_graph=twice, allow_unused=True)[0]
    g = library.zeros_like(x) if g is None else g
    found = [y, g]
    if twice and g.requires_grad:
        again = library.autograd.grad(weighed(g), x, allow_unused=True)[0]
        found.append(library.zeros_like(x) if again is None else again)
    return [t.detach().numpy() for t in found]


def agree(torch: Any, call: Callable[..., Any], array: np.ndarray, twice: bool = True) -> None:
    ours, theirs = (derivatives(m, call, array, twice) for m in (tw, torch))
    for a, b in zip(ours, theirs):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    "widths", [(-1, 1, -2, 1), (1, -3, 0, 0), (-2, 2, 2, -2), (-1, 3, 0, 0), (-2, -2, 1, 1)]
)
def test_padding_by_both_signs(torch: Any, mode: str, widths: tuple[int, ...]) -> None:
    agree(torch, lambda m, x: m.nn.functional.pad(x, widths, mode), A.reshape(1, 1, 4, 4))


def test_replicated_padding_of_what_is_cropped_away(torch: Any) -> None:
    def pad(m: Any, x: Any) -> Any:
        return m.nn.functional.pad(x, (-4, 5, 0, 0), "replicate")

    agree(torch, pad, A.reshape(1, 1, 4, 4))
    with pytest.raises(RuntimeError, match="negative output size"):
        tw.nn.functional.pad(tw.zeros(1, 1, 4, 4), (-3, -3, 0, 0), "reflect")


@pytest.mark.parametrize("zeros", [0, 1, 2, 3])
def test_second_derivatives_of_products_with_zeros(torch: Any, zeros: int) -> None:
    array = A.copy()
    array[1, :zeros] = 0
    agree(torch, lambda m, x: x.prod(), array[1])
    agree(torch, lambda m, x: x.prod(1), array)
    places = [[0, 1, 0, 1]] * 4

    def scattered(m: Any, x: Any) -> Any:
        return x[:, :2].scatter_reduce(1, m.tensor(places), x, "prod")

    agree(torch, scattered, array, twice=zeros < 2)


def test_third_derivatives_of_products_with_zeros(torch: Any) -> None:
    def third(m: Any, array: Any) -> np.ndarray:
        x = m.tensor(array, dtype=m.float64, requires_grad=True)
        w = m.arange(1, len(array) + 1, dtype=m.float64)
        y = x.prod()
        for k in range(3):
            (y,) = m.autograd.grad((y * w ** (0.3 * k)).sum(), x, create_graph=True)
        return y.detach().numpy()

    for array in ([0.0, 0.0, 0.0, 2.0], [0.0, 3.0, 0.0, 2.0], [4.0, 3.0, 0.0, 2.0]):
        np.testing.assert_allclose(third(tw, array), third(torch, array))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, x: m.linalg.vector_norm(x, 0, 1),
        lambda m, x: m.cdist(x, 2 * x, 0.0),
        lambda m, x: m.nn.functional.pdist(x, 0.0),
        lambda m, x: m.linalg.matrix_power(x, 0),
        lambda m, x: m.linalg.householder_product(x, m.zeros(0, dtype=m.float64)),
        lambda m, x: m.fill(x, 3.0),
        lambda m, x: m.combinations(x[0, :1], 2),
    ],
)
def test_results_that_do_not_depend_on_their_input(torch: Any, call: Callable[..., Any]) -> None:
    agree(torch, call, A, twice=False)
    agree(torch, call, A * 1e300, twice=False)


@pytest.mark.parametrize("p", [-0.5, 0.5, 1.5, 3])
def test_slopes_of_norms_at_zero(torch: Any, p: float) -> None:
    array = A.copy()
    array[0] = array[1, 2] = 0
    for m in (tw, torch):
        x = m.tensor(array, requires_grad=True)
        m.linalg.vector_norm(x, p, 1).sum().backward()
        if m is tw:
            ours = x.grad.numpy()
    np.testing.assert_allclose(ours, x.grad.numpy(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_derivatives_of_eigenvalues_are_symmetric(torch: Any, uplo: str) -> None:
    agree(torch, lambda m, x: m.linalg.eigvalsh(x, uplo), A)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize("order", [1, 2, INF])
def test_norms_of_empty_matrices(shape: tuple[int, int], order: float) -> None:
    assert tw.linalg.matrix_norm(tw.ones(shape), order) == 0
    assert tw.linalg.matrix_norm(tw.ones(shape), order, keepdim=True).shape == (1, 1)


@pytest.mark.parametrize("target", [1.0, -1.0, 0.0, 5.0])
def test_hinge_embedding_loss_of_other_targets(torch: Any, target: float) -> None:
    def loss(m: Any, x: Any) -> Any:
        target_ = m.full((4, 4), target, dtype=m.float64)
        return m.nn.functional.hinge_embedding_loss(x, target_, reduction="none")

    agree(torch, loss, A)


def test_numbers_in_place_of_vectors(torch: Any) -> None:
    x = np.array(0.3)
    agree(torch, lambda m, x: m.nn.functional.cosine_similarity(x, 2 * x, dim=0), x)
    agree(torch, lambda m, x: m.nn.functional.multilabel_margin_loss(x, m.tensor(0)), x, False)
