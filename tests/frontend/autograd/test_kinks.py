"""Gradients where a function has a kink, or elements tie, beside PyTorch's choice of a slope."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright as tw

Case = tuple[Callable[..., Any], tuple[Any, ...]]
PAIR, PLANE = [1.0, 2.0], [[1.0, 0.0], [0.0, 1.0]]

LOSSES: dict[str, Case] = {
    "margin ranking of equal scores": (
        lambda m, a, b: m.nn.functional.margin_ranking_loss(a, b, m.tensor([1.0, -1.0])),
        (PAIR, PAIR),
    ),
    "hinge embedding at its margin": (
        lambda m, a: m.nn.functional.hinge_embedding_loss(a, m.tensor([-1.0, -1.0])),
        (PAIR,),
    ),
    "multi margin at its margin": (
        lambda m, a: m.nn.functional.multi_margin_loss(a, m.tensor([0, 1])),
        ([[1.0, 0.0], [1.0, 2.0]],),
    ),
    "multilabel margin at its margin": (
        lambda m, a: m.nn.functional.multilabel_margin_loss(a, m.tensor([[0, -1], [1, -1]])),
        ([[1.0, 0.0], [1.0, 2.0]],),
    ),
    "cosine embedding of right angles": (
        lambda m, a, b: m.nn.functional.cosine_embedding_loss(a, b, m.tensor([-1, -1])),
        (PLANE, PLANE[::-1]),
    ),
    "triplets at their margin": (
        lambda m, a, b, c: m.nn.functional.triplet_margin_loss(a, b, c, margin=1.0, eps=0.0),
        ([[0.0, 0.0]], [[1.0, 0.0]], [[2.0, 0.0]]),
    ),
    "triplets with a distance": (
        lambda m, a, b, c: m.nn.functional.triplet_margin_with_distance_loss(
            a, b, c, distance_function=lambda x, y: (x - y).abs().sum(-1)
        ),
        ([[0.0, 0.0]], [[1.0, 0.0]], [[2.0, 0.0]]),
    ),
    "variances below eps": (
        lambda m, a, b: m.nn.functional.gaussian_nll_loss(a, m.zeros(2), b, eps=1.0),
        (PAIR, [2.0, 0.5]),
    ),
}
NAN = float("nan")
TIES: dict[str, Case] = {
    "median": (lambda m, a: a.median(), ([3.0, 1.0, 1.0, 0.0],)),
    "nanmedian": (lambda m, a: a.nanmedian(), ([3.0, 1.0, 1.0, 0.0, NAN],)),
    "median of NaN": (lambda m, a: a.median(), ([3.0, NAN, NAN],)),
    "median of rows": (lambda m, a: a.median(0)[0].sum(), (PLANE,)),
    "max": (lambda m, a: a.max(), ([2.0, 2.0, 1.0],)),
    "maximum": (lambda m, a, b: m.maximum(a, b).sum(), (PAIR, PAIR)),
    "norm of the greatest": (lambda m, a: a.norm(float("inf")), ([2.0, -2.0, 1.0],)),
}
ENDS: dict[str, Case] = {
    name: (lambda m, a, name=name: getattr(m.nn.functional, name)(a).sum(), ([low, high],))
    for name, low, high in [
        ("relu", 0.0, 1.0), ("relu6", 0.0, 6.0), ("hardtanh", -1.0, 1.0), ("hardshrink", -0.5, 0.5),
        ("softshrink", -0.5, 0.5), ("hardsigmoid", -3.0, 3.0), ("hardswish", -3.0, 3.0),
        ("elu", -0.0, 0.0), ("leaky_relu", -0.0, 0.0), ("celu", -0.0, 0.0), ("selu", -0.0, 0.0),
    ]
}  # fmt: skip
CASES = LOSSES | TIES | ENDS


@pytest.mark.computes
@pytest.mark.parametrize("name", CASES)
def test_slopes(name: str, torch: Any) -> None:
    call, values = CASES[name]

    def derived(m: Any) -> list[Any]:
        given = [m.tensor(v, requires_grad=True) for v in values]
        result = call(m, *given)
        return [result.detach().numpy(), *(g.numpy() for g in m.autograd.grad(result, given))]

    for ours, theirs in zip(derived(tw), derived(torch), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
