"""Second derivatives, and tangents, where a formula divides by zero or windows are left over."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from epoch_programs import calls_at_once

import tilewright as tw
from tilewright import recording


def _drawn(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def _twice(m: Any, f: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    """The gradients of a weighted sum of f's result, and those of a weighted sum of these."""
    leaves = [m.tensor(a, requires_grad=True) for a in arrays]

    def weighted(values: Any) -> Any:
        pairs = [(v * m.tensor(_drawn(i, *v.shape))).sum() for i, v in enumerate(values)]
        total = sum(pairs)
        return total.real if total.is_complex() else total

    first = m.autograd.grad(weighted([f(*leaves)]), leaves, create_graph=True)
    second = m.autograd.grad(weighted(first), leaves)
    return [g.detach().resolve_conj().numpy() for g in (*first, *second)]


@pytest.mark.parametrize("dtype", ["float64", "complex128"])
@pytest.mark.parametrize("zeros", [(), (3,), (0, 2, 5), (1, 2), (0, 1, 2, 3, 4, 5)])
def test_products_of_zeros(torch: Any, zeros: tuple[int, ...], dtype: str) -> None:
    x = _drawn(1, 3, 6).astype(dtype)
    x[1, list(zeros)] = 0
    found, expected = (_twice(m, lambda x: x.cumprod(1), x) for m in (tw, torch))
    for mine, theirs in zip(found, expected):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("unbatched", [False, True])
def test_a_transposed_convolution_with_windows_to_spare(torch: Any, unbatched: bool) -> None:
    options = dict(stride=(3, 2), padding=(1, 2), output_padding=(2, 3), groups=2, dilation=(4, 4))
    x, weight = _drawn(1, 2, 2, 4, 4), _drawn(2, 2, 2, 4, 5)
    x = x[0] if unbatched else x

    def f(m: Any) -> Any:
        return lambda x, w: m.nn.functional.conv_transpose2d(x, w, **options)

    found, expected = (_twice(m, f(m), x, weight) for m in (tw, torch))
    for mine, theirs in zip(found, expected):
        np.testing.assert_allclose(mine, theirs, rtol=1e-10, atol=1e-10)


def test_tangents_of_logcumsumexp() -> None:
    x, tangent = _drawn(1, 2, 50) * 8, _drawn(2, 2, 50)
    x[0, :2] = -np.inf
    sums = np.logaddexp.accumulate(x, axis=1)
    with np.errstate(invalid="ignore"):
        share = np.exp(x[:, None, :] - sums[:, :, None])
    share = np.where(np.tri(50, dtype=bool) & np.isfinite(sums)[:, :, None], share, 0)
    expected = np.einsum("rij,rj->ri", share, tangent)
    moved = tw.func.jvp(lambda t: t.logcumsumexp(1), (tw.tensor(x),), (tw.tensor(tangent),))[1]
    np.testing.assert_allclose(moved.numpy(), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("kept", ["none", "hidden", "both"])
@pytest.mark.parametrize("read", [False, True])
def test_by_a_tensor_in_between(torch: Any, read: bool, kept: str) -> None:
    """A later pass is asked for a gradient by a tensor that the first one has gone through."""

    def run(m: Any) -> list[Any]:
        x = m.tensor([2.0, 3.0], dtype=m.float64, requires_grad=True)
        hidden = x * 2
        squares = (hidden * 0.5).square()
        if kept == "none":
            hidden.register_hook(lambda g: seen.append(g.tolist()))
        y = squares.exp() * hidden
        seen: list[Any] = []
        if read:
            y.sum().item()
        asked = {"none": [x], "hidden": [x, hidden], "both": [x, hidden, squares]}[kept]
        g = m.autograd.grad((y * y).sum(), asked, create_graph=True)[0]
        found = m.autograd.grad((g * g).sum(), [hidden, squares, x], allow_unused=True)
        return [*(each.tolist() for each in found), *seen]

    with recording.novelty.recorded():
        ours = run(tw)
    for a, b in zip(ours, run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)


@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("read", [False, True])
@pytest.mark.parametrize("form", ["view", "of a view", "transposed", "slice"])
def test_by_a_view_in_between(torch: Any, form: str, read: bool, at_once: bool) -> None:
    """As above by a view, which the second pass's copy of the forward graph goes through, too."""
    forms: dict[str, Any] = {
        "view": lambda t: t.view(2, 2),
        "of a view": lambda t: t.view(2, 2)[1],
        "transposed": lambda t: t.view(2, 2).t(),
        "slice": lambda t: t[1:3],
    }

    def run(m: Any) -> list[Any]:
        x = m.tensor([2.0, 3.0, 0.5, 1.5], dtype=m.float64, requires_grad=True)
        found = []
        for _ in range(2):
            h = forms[form](x * 2)
            y = (h**3).sum() + (h * h).exp().sum() * 1e-3
            if read:
                y.item()
            (g,) = m.autograd.grad(y, x, create_graph=True)
            found += m.autograd.grad((g * g).sum(), [h, x])
        return [each.tolist() for each in found]

    with calls_at_once(at_once):
        ours = run(tw)
    for a, b in zip(ours, run(torch), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9)
