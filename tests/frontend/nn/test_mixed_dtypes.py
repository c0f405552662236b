"""Norms and losses of inputs of several dtypes: PyTorch's choice between a result and an error."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright as tw

NORMS: dict[str, Any] = {
    "layer_norm": lambda F, x, w, one: F.layer_norm(x, (4,), w, w),
    "layer_norm, own weight": lambda F, x, w, one: F.layer_norm(x, (4,), w.to(x.dtype), w),
    "rms_norm": lambda F, x, w, one: F.rms_norm(x, (4,), w),
    "group_norm": lambda F, x, w, one: F.group_norm(x, 2, w[:2], w[:2]),
    "batch_norm": lambda F, x, w, one: F.batch_norm(x, one * 0, one, w[:2], w[:2], True),
    "batch_norm, evaluation": lambda F, x, w, one: F.batch_norm(x, w[:2] * 0, w[:2]),
    "instance_norm": lambda F, x, w, one: F.instance_norm(x, weight=w[:2], bias=w[:2]),
}
DTYPES = ("float32", "bfloat16", "float16", "float64")


@pytest.mark.filterwarnings("ignore:Mismatch dtype between input and weight")  # PyTorch's
@pytest.mark.parametrize("parameters", DTYPES)
@pytest.mark.parametrize("input", DTYPES)
@pytest.mark.parametrize("name", NORMS)
def test_norms_of_mixed_dtypes(name: str, input: str, parameters: str, torch: Any) -> None:
    def run(m: Any) -> Any:
        x = (m.arange(24.0).reshape(3, 2, 4) / 7).sin().to(getattr(m, input))
        w = m.ones(4, dtype=getattr(m, parameters)) * 1.5
        try:
            return NORMS[name](m.nn.functional, x, w, m.ones(2))
        except RuntimeError:
            return None

    ours, theirs = run(tw), run(torch)
    if theirs is None:
        assert ours is None
        return
    assert str(ours.dtype).partition(".")[2] == str(theirs.dtype).partition(".")[2]
    # PyTorch's instance norm rounds the moments to half types.
    half = "16" in input
    pairs = zip(ours.flatten().tolist(), theirs.flatten().tolist(), strict=True)
    for mine, other in pairs:
        assert mine == pytest.approx(other, rel=2e-2 if half else 1e-5, abs=4e-2 if half else 1e-5)


def classes(m: Any) -> Any:
    return m.tensor([0, 1, 2])


LOSSES: dict[str, Any] = {
    "probabilities": lambda m, F, x, y: F.cross_entropy(x, y.softmax(-1)),
    "probabilities, weights": lambda m, F, x, y: F.cross_entropy(x, x.softmax(-1), y[0].exp()),
    "weights": lambda m, F, x, y: F.cross_entropy(x, classes(m), y[0].exp()),
    "weights of nll_loss": lambda m, F, x, y: F.nll_loss(x, classes(m), y[0].exp()),
    "binary": lambda m, F, x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
    "gaussian": lambda m, F, x, y: F.gaussian_nll_loss(x, y, y.exp()),
    "squares": lambda m, F, x, y: F.mse_loss(x, y),
}


@pytest.mark.parametrize("other", DTYPES)
@pytest.mark.parametrize("input", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("name", LOSSES)
def test_losses_of_mixed_dtypes(name: str, input: str, other: str, torch: Any) -> None:
    def run(m: Any) -> Any:
        x = (m.arange(12.0).reshape(3, 4) / 7).sin().to(getattr(m, input)).requires_grad_()
        y = (m.arange(12.0).reshape(3, 4) / 5).cos().to(getattr(m, other))
        try:
            loss = LOSSES[name](m, m.nn.functional, x, y)
        except RuntimeError:
            return None
        loss.backward()
        return [loss, x.grad]

    ours, theirs = run(tw), run(torch)
    assert (ours is None) == (theirs is None)
    for mine, other_ in zip(ours or (), theirs or (), strict=True):
        assert str(mine.dtype).partition(".")[2] == str(other_.dtype).partition(".")[2]
        half = "16" in input + other
        expected = pytest.approx(
            other_.flatten().tolist(), rel=3e-2 if half else 1e-5, abs=1e-2 if half else 1e-6
        )
        assert mine.flatten().tolist() == expected
