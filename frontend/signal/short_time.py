"""torch.stft and torch.istft: Fourier transforms of windows that move over a signal.

Both are formulas over `torch.fft`, so they have gradients of any order.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import fft
from ..functions.call import public
from ..functions.complexes import view_as_real
from ..functions.creation import ones
from ..nn.functional import pad
from ..recording import record, record_fallible

if TYPE_CHECKING:
    from .._tensor import Tensor


def _padded(window: Any, win_length: int, n_fft: int) -> Any:
    """A window with zeros on both sides."""
    left = (n_fft - win_length) // 2
    return window if n_fft == win_length else pad(window, (left, n_fft - win_length - left))


def _need_half(onesided: bool, is_complex: bool) -> None:
    if onesided and is_complex:
        raise RuntimeError(
            f"Cannot have onesided output if window or input is complex{at_user_line()}"
        )


def _warn_of_window(name: str) -> None:
    warnings.warn(
        f"{name}: no window is given. A rectangular one leaks between frequencies; see "
        "torch.hann_window.",
        UserWarning,
        stacklevel=3,
    )


@public("stft")
def stft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    pad_mode: str = "reflect",
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """The Fourier transforms of windows of n_fft samples, hop_length apart.

    input: [*, samples]. Returns [*, frequencies, windows].
    hop_length: n_fft // 4 by default. win_length: of the window, in the middle of n_fft samples.
    center: window t has sample t * hop_length in its middle, of a signal padded as `pad_mode` says;
        otherwise it begins there. align_to_window: the part that isn't zero begins there.
    normalized: divide by the root of n_fft. onesided: only the n_fft // 2 + 1 frequencies that tell
        the others; by default for real numbers. return_complex: False gives parts, [*, 2].
    """
    hop = n_fft // 4 if hop_length is None else int(hop_length)
    length = n_fft if win_length is None else int(win_length)
    is_complex = input.dtype.is_complex or (window is not None and window.dtype.is_complex)
    if return_complex is None:
        if not is_complex:
            raise RuntimeError(
                "stft requires the return_complex parameter be given for real inputs, and will "
                "further require that return_complex=True in a future PyTorch release."
                f"{at_user_line()}"
            )
        return_complex = True
    if center and align_to_window is not None:
        raise RuntimeError(
            f"stft align_to_window should only be set when center = false{at_user_line()}"
        )
    if window is None:
        _warn_of_window("stft")
    if not input.dtype.is_differentiable:
        raise RuntimeError(
            f"stft: expected a tensor of floating point or complex values, got {input.dtype}"
            f"{at_user_line()}"
        )
    if not 1 <= input.dim() <= 2:
        raise RuntimeError(f"stft: expected a 1D or 2D tensor, got {input.dim()}D{at_user_line()}")
    x = input if input.dim() == 2 else input.unsqueeze(0)
    if center:
        x = pad(x.unsqueeze(0), (n_fft // 2, n_fft // 2), pad_mode).squeeze(0)
    _need(0 < n_fft <= x.shape[-1], "stft", f"0 < n_fft <= {x.shape[-1]}", n_fft=n_fft)
    _need(hop > 0, "stft", "hop_length > 0", hop_length=hop)
    _need(0 < length <= n_fft, "stft", "0 < win_length <= n_fft", win_length=length)
    if window is not None:
        _need_window("stft", window, length)
    elif length < n_fft:
        window = ones(length, dtype=input.dtype, device=input.device)
    if align_to_window:  # what is added meets zeros of the window
        left = (n_fft - length) // 2
        x = pad(x, (left, n_fft - length - left))
    frames = x.unfold(-1, n_fft, hop)
    if window is not None:
        frames = frames * _padded(window, length, n_fft)
    half = not is_complex if onesided is None else onesided
    _need_half(half, is_complex)
    transform = fft.rfft if half else fft.fft
    found = transform(frames, norm="ortho" if normalized else "backward").transpose(1, 2)
    found = found if input.dim() == 2 else found.squeeze(0)
    return found if return_complex else view_as_real(found)


def _need(holds: bool, name: str, what: str, **got: int) -> None:
    if not holds:
        ((argument, value),) = got.items()
        raise RuntimeError(f"{name}: expected {what}, but got {argument}={value}{at_user_line()}")


def _need_window(name: str, window: Any, length: int) -> None:
    if window.dim() != 1 or window.shape[0] != length:
        raise RuntimeError(
            f"{name}: expected a 1D window tensor of size equal to win_length={length}, but got "
            f"window with size {list(window.shape)}{at_user_line()}"
        )


def _overlapping(frames: Node, hop: int) -> Node:
    """frames[batch, windows, n] added up, each hop elements after the one before."""
    *batch, count, size = frames.shape
    whole = (*batch, size + hop * (count - 1))
    return ops.fold(frames, whole, (frames.rank - 2,), (size,), (hop,), (1,))


def _divided(y: Node, envelope: Node) -> Node:
    size = ops.modulus(envelope) if envelope.dtype.is_complex else ops.abs(envelope)
    fine = ops.require(size > 1e-11, "istft")
    return y / ops.where(ops.eq(fine, ops.zeros_like(fine)), envelope, ops.zeros_like(envelope))


@public("istft", _overlapping, _divided)
def istft(
    input: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Tensor:
    """The signal of which `stft` gives `input`, nearest in squares (Griffin and Lim, 1984).

    input: [*, frequencies, windows]. length: of the result; what windows don't reach is zero.
    RuntimeError if at some sample all windows are zero.
    """
    hop = n_fft // 4 if hop_length is None else int(hop_length)
    size = n_fft if win_length is None else int(win_length)
    if window is None:
        _warn_of_window("istft")
    if not input.dtype.is_complex:
        raise RuntimeError(
            "istft requires a complex-valued input tensor matching the output from stft with "
            f"return_complex=True.{at_user_line()}"
        )
    if not input.numel():
        raise RuntimeError(f"istft: input tensor cannot be empty.{at_user_line()}")
    if not 2 <= input.dim() <= 3:
        raise RuntimeError(
            f"istft: expected a tensor with 2 or 3 dimensions, but got {input.dim()}"
            f"{at_user_line()}"
        )
    half = input.shape[-2] != n_fft if onesided is None else onesided
    rows = n_fft // 2 + 1 if half else n_fft
    _need(input.shape[-2] == rows, "istft", f"{rows} frequencies", size=input.shape[-2])
    _need(0 < size <= n_fft, "istft", "0 < win_length <= n_fft", win_length=size)
    _need(0 < hop <= size, "istft", "0 < hop_length <= win_length", hop_length=hop)
    if window is None:
        window = ones(size, dtype=input.dtype.to_real(), device=input.device)
    _need_window("istft", window, size)
    if return_complex:
        _need_half(half, True)
    elif window.dtype.is_complex:
        raise RuntimeError(
            f"Complex windows are incompatible with return_complex=False{at_user_line()}"
        )
    window = _padded(window, size, n_fft)
    frames = input.transpose(-2, -1)
    norm = "ortho" if normalized else "backward"
    if return_complex:
        frames = fft.ifft(frames, norm=norm)
    else:
        frames = fft.irfft(frames[..., : n_fft // 2 + 1], n_fft, norm=norm)
    y = record(_overlapping, frames * window, hop)
    squares = (window * window).expand(input.shape[-1], n_fft)
    envelope = record(_overlapping, squares, hop)
    start = n_fft // 2 if center else 0
    last = y.shape[-1]
    end = start + length if length is not None else last - start
    y = record_fallible(_divided, y[..., start:end], envelope[start:end].to(y.dtype))
    if end > last:
        warnings.warn(
            "The length of signal is shorter than the length parameter. Result is being padded with"
            " zeros in the tail. Please check your center and hop_length settings.",
            UserWarning,
            stacklevel=2,
        )
        y = pad(y, (0, end - last))
    return y
