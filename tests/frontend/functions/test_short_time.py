"""stft, istft and the windows that torch itself has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilewright as tw

pytestmark = [
    pytest.mark.computes,
    pytest.mark.filterwarnings("ignore:.*(window|shorter|return_complex):UserWarning"),
]

RNG = np.random.default_rng(0)
REAL = RNG.standard_normal((2, 61))
COMPLEX = REAL + 1j * RNG.standard_normal((2, 61))
WINDOW = RNG.random(12) + 0.1
TURNED = WINDOW + 1j * RNG.random(12)
SPECTRUM = RNG.standard_normal((2, 9, 14)) + 1j * RNG.standard_normal((2, 9, 14))
WHOLE = RNG.standard_normal((12, 9)) + 1j * RNG.standard_normal((12, 9))

CASES = {
    "plain": (lambda m, x, w: m.stft(x, 12, 3, window=w, return_complex=True), REAL, WINDOW),
    "vector": (
        lambda m, x: x[0].stft(16, normalized=True, return_complex=True, pad_mode="constant"),
        REAL),
    "aligned": (
        lambda m, x, w: m.stft(
            x, 17, 4, 12, w, center=False, return_complex=True, align_to_window=True),
        REAL, WINDOW),
    "parts": (lambda m, x, w: m.stft(x, 12, 5, 12, w, onesided=False, return_complex=False),
              REAL, WINDOW),
    "complex": (lambda m, x, w: m.stft(x, 12, 5, window=w, pad_mode="circular"), COMPLEX, WINDOW),
    "complex window": (lambda m, x, w: m.stft(x, 12, 5, window=w), REAL, TURNED),
    "long": (lambda m, x: m.stft(x, 40, 15, center=False, return_complex=True), REAL),
    "inverse": (lambda m, s, w: m.istft(s, 17, 4, 12, w, length=40), SPECTRUM, WINDOW),
    "inverse, normalized": (lambda m, s: s.istft(16, 5, normalized=True, center=False), SPECTRUM),
    "inverse, longer": (lambda m, s: m.istft(s, 16, 4, length=80), SPECTRUM),
    "inverse, complex": (
        lambda m, s, w: m.istft(s, 12, 3, window=w, return_complex=True), WHOLE, TURNED),
    "inverse, real": (lambda m, s, w: m.istft(s, 12, 3, window=w, onesided=False), WHOLE, WINDOW),
}  # fmt: skip


def outcome(m: Any, call: Any, *arrays: np.ndarray) -> list[np.ndarray]:
    inputs = [m.tensor(a).requires_grad_() for a in arrays]
    found = call(m, *inputs)
    weights = m.arange(1, found.numel() + 1, dtype=m.float64).reshape(found.shape).cos()
    parts = found.real + 0.7 * found.imag if found.is_complex() else found
    grads = m.autograd.grad((parts * weights).sum(), inputs)
    return [t.detach().resolve_conj().numpy() for t in (found, *grads)]


@pytest.mark.parametrize("name", CASES)
def test_as_pytorch(torch: Any, name: str) -> None:
    for ours, theirs in zip(*(outcome(m, *CASES[name]) for m in (tw, torch)), strict=True):
        assert ours.dtype == theirs.dtype
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_there_and_back() -> None:
    x, w = tw.tensor(REAL), tw.hann_window(12, dtype=tw.float64)
    spectrum = tw.stft(x, 12, window=w, return_complex=True)
    frames = np.lib.stride_tricks.sliding_window_view(
        np.pad(REAL, ((0, 0), (6, 6)), "reflect"), 12, 1
    )
    expected = np.fft.rfft(frames[:, ::3] * (0.5 - 0.5 * np.cos(np.arange(12) * np.pi / 6)))
    np.testing.assert_allclose(spectrum.numpy(), expected.swapaxes(1, 2), atol=1e-12)
    back = tw.istft(spectrum, 12, window=w, length=61)
    np.testing.assert_allclose(back.numpy()[:, :60], REAL[:, :60], atol=1e-12)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda x: tw.stft(x, 12), "return_complex"),
        (lambda x: tw.stft(x, 12, center=False, return_complex=True, win_length=13), "win_length"),
        (lambda x: tw.stft(x, 12, window=tw.ones(9), return_complex=True), "1D window"),
        (lambda x: tw.stft(x, 12, align_to_window=True, return_complex=True), "center = false"),
        (lambda x: tw.stft(x.long(), 12, return_complex=True), "floating point or complex"),
        (lambda x: tw.istft(x, 12), "complex-valued"),
        (lambda x: tw.istft(tw.ones(2, 9, 9) * 1j, 12), "frequencies"),
        (lambda x: tw.istft(
            tw.ones(7, 9) * 1j, 12, window=tw.hann_window(12), center=False).sum().item(), "zero"),
    ],
)  # fmt: skip
def test_errors(call: Any, text: str) -> None:
    with pytest.raises(RuntimeError, match=text):
        call(tw.tensor(REAL))


def test_windows(torch: Any) -> None:
    names = "bartlett_window blackman_window hamming_window hann_window kaiser_window"
    for name in names.split():
        for length, periodic, dtype in (
            (0, True, "float64"), (1, False, "float32"), (7, True, "float64"), (8, False, "float16")
        ):  # fmt: skip
            ours, theirs = (
                getattr(m, name)(length, periodic, dtype=getattr(m, dtype)) for m in (tw, torch)
            )
            assert str(ours.dtype) == str(theirs.dtype)
            close = 2e-3 if dtype == "float16" else 1e-12
            np.testing.assert_allclose(ours.numpy(), theirs.numpy(), atol=close)
    with pytest.raises(RuntimeError, match="non-negative"):
        tw.hann_window(-1)
    with pytest.raises(RuntimeError, match="floating point"):
        tw.hamming_window(3, alpha=0.5, dtype=tw.int64)
    assert tw.kaiser_window(5, False, 3.0, requires_grad=True).requires_grad
