"""torch.fft on devices without a routine: passes of kernels, beside PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from compiling import taken

import tilewright as tw
from tilewright.codegen.program import compile_graph
from tilewright.codegen.target import gpu
from tilewright.ir import dtype as dt
from tilewright.ir import ops
from tilewright.ir.ops.fourier_passes import fourier_passes, radices
from tilewright.ir.passes.pipeline import lower_graph
from tilewright.ir.shape import Size

pytestmark = pytest.mark.triton
RNG = np.random.default_rng(0)
Z = RNG.normal(size=(2, 3, 8)) + 1j * RNG.normal(size=(2, 3, 8))


def outcome(m: Any, name: str, options: dict[str, Any], x: np.ndarray, device: str) -> Any:
    """The value, its gradient and the gradient of that one's square."""
    given = m.tensor(x, device=device, requires_grad=True)
    y = getattr(m.fft, name)(given, **options)
    loss = (y.abs() ** 2).sum() ** 1.5
    (first,) = m.autograd.grad(loss, given, create_graph=True)
    (second,) = m.autograd.grad((first.abs() ** 2).sum(), given)
    return [t.detach().cpu().resolve_conj().numpy() for t in (y, first, second)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("fft", {"n": 16}),
        ("fft", {"n": 11, "dim": 0, "norm": "ortho"}),
        ("ifft", {"n": 17}),  # by a chirp
        ("rfft", {"n": 1}),
        ("rfftn", {"norm": "forward"}),
        ("irfft", {"n": 9}),
        ("irfft2", {"s": (4, 6)}),
        ("hfft", {"n": 10}),
        ("ihfft", {}),
    ],
)
@pytest.mark.filterwarnings("ignore:.*numpy:UserWarning")
def test_transforms(torch: Any, name: str, options: dict[str, Any]) -> None:
    x = Z.real.copy() if name in ("rfft", "rfftn", "ihfft") else Z
    ours = outcome(tw, name, options, x, "interpret")
    for a, b in zip(ours, outcome(torch, name, options, x, "cpu"), strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-10, atol=1e-10 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("n", [64, 360, 97])
def test_single_precision(n: int) -> None:
    """Each pass adds a rounding or two."""
    x = (RNG.normal(size=(3, n)) + 1j * RNG.normal(size=(3, n))).astype(np.complex64)
    found = tw.fft.fft(tw.tensor(x, device="interpret"))
    wanted = np.fft.fft(x.astype(np.complex128))
    assert found.dtype is tw.complex64
    assert np.abs(found.cpu().numpy() - wanted).max() < 3e-7 * np.abs(wanted).max()


def test_windows_of_a_signal(torch: Any) -> None:
    """And many of them in a call that is recorded once."""
    x = RNG.normal(size=(2, 40))
    options = {"n_fft": 12, "hop_length": 5, "return_complex": True}
    found = tw.stft(
        tw.tensor(x, device="interpret"),
        window=tw.hann_window(12, dtype=tw.float64, device="interpret"),
        **options,
    )
    wanted = torch.stft(
        torch.tensor(x), window=torch.hann_window(12, dtype=torch.float64), **options
    )
    np.testing.assert_allclose(found.cpu().numpy(), wanted.numpy(), atol=1e-12)
    many = tw.vmap(tw.fft.fft)(tw.tensor(Z, device="interpret"))
    np.testing.assert_allclose(many.cpu().numpy(), np.fft.fft(Z), atol=1e-12)


def test_lengths_are_cut_into_short_sums() -> None:
    for n in (2, 12, 13, 360, 1024, 3**7, 2 * 11 * 13):
        found = radices(n)
        assert found is not None and np.prod(found) == n and max(found) <= 13
    assert radices(4096) == (8, 8, 8, 8) and radices(17) is None and radices(2 * 97) is None


def test_a_pass_is_a_kernel() -> None:
    """Angles are computed once, not at each point; nothing is spilled as devices take it."""
    x = ops.leaf(0, Size((16384, 512)), dt.complex64)
    target = gpu("sm_90")
    steps = compile_graph(lower_graph([fourier_passes(x, (1,), False, "backward")]), target).steps
    large = [s for s in steps if s.kernel.outputs[0].size >= 16384 * 512]
    assert len(large) == 3
    for step in large:
        found = taken(step.kernel, "sm_90")
        assert found.spills == 0 and "cos" not in found.asm["ttir"]
