"""Fourier transforms, and what goes with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ... import fft
from ...functions import creation
from .api import f
from .table import operator
from .values import dtype_of


@operator("DFT", since=20, host=("length", "axis"))
def dft(
    x: Any, length: Any = None, axis: Any = None, *, inverse: int = 0, onesided: int = 0
) -> Any:
    """The transform along `axis`. The last dimension has the real and the imaginary part, or the
    real part alone."""
    dim = -2 if axis is None else int(axis.item())
    dim %= x.dim()
    wide = x.to(dtypes.float32) if x.dtype in dtypes.HALVES else x
    n = None if length is None else int(length.item())
    half = onesided and not inverse
    if inverse and onesided:
        size = n if n is not None else 2 * (x.shape[dim] - 1)
        return fft.irfft(_complex(wide), size, dim).unsqueeze(-1).to(x.dtype)
    if half or (wide.shape[-1] == 1 and not inverse):
        signal = wide[..., 0]
        found = fft.rfft(signal, n, dim) if half else fft.fft(signal, n, dim)
    else:
        signal = _complex(wide)
        found = fft.ifft(signal, n, dim) if inverse else fft.fft(signal, n, dim)
    return f.view_as_real(found).to(x.dtype)


@operator("DFT", host=("length",))
def dft_along_attribute(x: Any, length: Any = None, *, axis: int = 1, **options: Any) -> Any:
    return dft(x, length, np.array(axis), **options)


def _complex(x: Any) -> Any:
    """The numbers whose parts are in the last dimension."""
    real = x[..., 0]
    imaginary = x[..., 1] if x.shape[-1] == 2 else creation.zeros_like(real)
    return f.complex(real, imaginary)


@operator("STFT", host=("step", "length"))
def stft(
    signal: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1
) -> Any:
    """Transforms of the frames of signal[n, time, 1 or 2]: [n, frames, frequencies, 2]."""
    if length is not None:
        size = int(length.item())
    else:
        size = signal.shape[1] if window is None else window.shape[0]
    frames = signal.unfold(1, size, int(step.item())).transpose(2, 3)  # [n, frames, size, parts]
    if window is not None:
        frames = frames * window.reshape(-1, 1)
    half = int(bool(onesided) and signal.shape[-1] == 1)
    return dft(frames, None, np.array(2), onesided=half)


def _window(name: str, made: Callable[..., Any]) -> None:
    # Known on the host, it is a part of the graph.
    @operator(name, host=("size",), known="function")
    def window(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        count = int(size.item())
        turns = np.arange(count) * (2 * math.pi / (count if periodic else max(count - 1, 1)))
        return made(turns).astype(dtype_of(output_datatype).np)


_window("HannWindow", lambda t: 0.5 - 0.5 * np.cos(t))
_window("HammingWindow", lambda t: 25 / 46 - 21 / 46 * np.cos(t))
_window("BlackmanWindow", lambda t: 0.42 - 0.5 * np.cos(t) + 0.08 * np.cos(2 * t))


@operator("MelWeightMatrix", host=("bins", "length", "rate", "lowest", "highest"), known="function")
def mel_weight_matrix(
    bins: Any, length: Any, rate: Any, lowest: Any, highest: Any, *, output_datatype: int = 1
) -> Any:
    """Triangles [frequencies, bins] that are even on the mel scale, each with the height 1.

    As ONNX defines them, their corners are whole numbers of frequencies.
    """
    count, size = int(bins.item()), int(length.item())
    edges = np.array([lowest.item(), highest.item()], np.float64)
    low, high = 2595 * np.log10(1 + edges / 700)
    mels = low + np.arange(count + 2) * ((high - low) / (count + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    corners = ((size + 1) * hertz // float(rate.item())).astype(np.int64)
    line = np.arange(size // 2 + 1)[:, None]
    start, middle, end = corners[:-2], corners[1:-1], corners[2:]
    rising = (line - start) / np.maximum(middle - start, 1)
    falling = (end - line) / np.maximum(end - middle, 1)
    weights = np.where(line == middle, 1.0, np.maximum(np.minimum(rising, falling), 0.0))
    return weights.astype(dtype_of(output_datatype).np)
