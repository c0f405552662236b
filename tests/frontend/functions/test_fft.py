"""torch.fft beside PyTorch: values and gradients over sizes, dimensions and norms, and errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime import tiers

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.computes, pytest.mark.filterwarnings("ignore")]

RNG = np.random.default_rng(0)
Z = RNG.normal(size=(3, 4, 6)) + 1j * RNG.normal(size=(3, 4, 6))
BASES = "fft ifft rfft irfft hfft ihfft".split()
OPTIONS: dict[str, tuple[dict[str, Any], ...]] = {
    "": ({}, {"n": 5}, {"n": 8}, {"n": 1}, {"n": 0}, {"dim": 0}, {"dim": 3}, {"norm": "other"},
         {"dim": 1, "norm": "ortho"}, {"norm": "forward", "n": 7}),
    "2": ({}, {"s": (3, 7)}, {"dim": (0, 2), "norm": "ortho"}, {"dim": (1, 1)}),
    "n": ({}, {"s": (5, 4)}, {"dim": (2, 0), "norm": "forward"}, {"dim": (1,)}),
}  # fmt: skip
CALLS = [
    (base + end, options) for base in BASES for end, each in OPTIONS.items() for options in each
]


@pytest.fixture(autouse=True, params=["fused", "baseline"])
def tier(request: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tiers, "mode", request.param)


def outcome(m: Any, name: str, options: dict[str, Any], x: np.ndarray) -> Any:
    """The value, its gradient and the gradient of that one's square; or the class of the error."""
    given = m.tensor(x, requires_grad=True)
    try:
        y = getattr(m.fft, name)(given, **options)
    except (RuntimeError, IndexError) as error:
        return type(error)
    loss = (y.abs() ** 2).sum() ** 1.5
    (first,) = m.autograd.grad(loss, given, create_graph=True)
    (second,) = m.autograd.grad((first.abs() ** 2).sum(), given)
    return [t.detach().resolve_conj().numpy() for t in (y, first, second)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(("name", "options"), CALLS)
def test_transforms(name: str, options: dict[str, Any], real: bool) -> None:
    x = Z.real.copy() if real else Z
    ours, theirs = outcome(tw, name, options, x), outcome(torch, name, options, x)
    if isinstance(theirs, type) or isinstance(ours, type):
        assert ours is theirs
        return
    for a, b in zip(ours, theirs, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-8, atol=1e-8 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("n", range(1, 8))
def test_frequencies(n: int) -> None:
    for name in ("fftfreq", "rfftfreq"):
        ours, theirs = (getattr(m.fft, name)(n, 0.5) for m in (tw, torch))
        np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6)


@pytest.mark.parametrize("dim", [None, 0, (1, 2)])
def test_shifts(dim: Any) -> None:
    for name in ("fftshift", "ifftshift"):
        ours, theirs = (getattr(m.fft, name)(m.tensor(Z[:, :3]), dim=dim) for m in (tw, torch))
        assert np.array_equal(ours.numpy(), theirs.numpy())


def test_single_precision_stays_single() -> None:
    x = tw.tensor(Z.astype(np.complex64), device="interpret")
    found = tw.fft.fft(x)
    assert found.dtype is tw.complex64
    np.testing.assert_allclose(found.cpu().numpy(), np.fft.fft(Z), rtol=1e-4, atol=1e-4)
    assert tw.fft.fft(tw.tensor([1, 2, 3])).dtype is tw.complex64
