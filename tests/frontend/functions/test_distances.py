"""cdist: distances from differences or from a product, as `compute_mode` and the sizes tell."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = pytest.mark.computes

MODES = [
    "use_mm_for_euclid_dist_if_necessary",
    "use_mm_for_euclid_dist",
    "donot_use_mm_for_euclid_dist",
]
SHAPES = [
    ((30, 4), (40, 4)),
    ((3, 4), (4, 4)),
    ((2, 30, 4), (5, 4)),
    ((2, 1, 6, 4), (3, 26, 4)),
    ((0, 4), (30, 4)),
    ((30, 4), (0, 4)),
]


def rows(*shape: int) -> np.ndarray:
    return np.random.default_rng(shape[-2]).normal(size=shape)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("shapes", SHAPES)
def test_distances_and_slopes(torch: Any, mode: str, shapes: Any) -> None:
    given = [rows(*s) for s in shapes]
    found = []
    for m in (tw, torch):
        a, b = (m.tensor(x, requires_grad=True) for x in given)
        d = m.cdist(a, b, compute_mode=mode)
        (d * d + d).sum().backward()
        found.append([x.detach().numpy() for x in (d, a.grad, b.grad)])
    for ours, theirs in zip(*found):
        np.testing.assert_allclose(ours, theirs, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("mode", MODES[1:])
def test_the_mode_is_that_of_pytorch(torch: Any, mode: str) -> None:
    """Far from the origin a product cancels digits, which differences keep."""
    x = (rows(40, 3) + 1e4).astype(np.float32)
    exact = np.sqrt(((x[:, None].astype(np.float64) - x[None]) ** 2).sum(-1))
    errors = [
        abs(m.cdist(m.tensor(x), m.tensor(x), compute_mode=mode).numpy() - exact).max()
        for m in (tw, torch)
    ]
    assert all((e > 0.1) == (mode == MODES[1]) for e in errors)


def test_equal_rows_have_no_slope() -> None:
    x = tw.ones(30, 2, requires_grad=True)
    d = tw.cdist(x, x)
    d.sum().backward()
    assert not d.detach().numpy().any() and not x.grad.numpy().any()


def test_nan_stays() -> None:
    x = tw.full((30, 2), float("nan"))
    assert np.isnan(tw.cdist(x, x).numpy()).all()


def test_an_unknown_mode(torch: Any) -> None:
    for m in (tw, torch):
        with pytest.raises(ValueError, match="fast is not a valid value for compute_mode"):
            m.cdist(m.ones(2, 2), m.ones(2, 2), compute_mode="fast")


@pytest.mark.parametrize("p", [-1.0, float("-inf")])
def test_a_negative_norm(torch: Any, p: float) -> None:
    for m in (tw, torch):
        with pytest.raises(RuntimeError, match="cdist only supports non-negative p values"):
            m.cdist(m.ones(2, 2), m.ones(2, 2), p=p)
