"""Recursive filters: each sample of the output depends on those before it."""

from __future__ import annotations

import numpy as np

from tilewright.ir.location import at_user_line

from .._tensor import Tensor
from ..functions.from_data import beside

_BLOCK = 64
"""Samples that are computed by one product."""


def recursion(x: np.ndarray, a: np.ndarray, before: np.ndarray) -> np.ndarray:
    """y[t] = x[t] - a[1] y[t - 1] - a[2] y[t - 2] - …, in float64, for rows with filters.

    x: [..., channels, samples]. a: [channels, order], of which a[:, 0] isn't read. before: the
    order - 1 samples of y before the first, the latest one last: [..., channels, order - 1].

    A block of samples is a triangular matrix times x, the filter's response to an impulse, plus a
    matrix times the last samples before the block, its response to them. Both are computed once.
    """
    channels, memory = a.shape[0], a.shape[1] - 1
    if not memory or not x.size:
        return np.array(x, np.float64)
    size = max(_BLOCK, memory)
    taps = a[:, :0:-1]  # in the order of the samples that they weigh
    # Each row starts with one sample before the block or an impulse at its beginning.
    runs = np.zeros((memory + 1, channels, memory + size))
    runs[range(memory), :, range(memory)] = 1
    for t in range(size):
        at = memory + t
        runs[:, :, at] = -np.einsum("rct,ct->rc", runs[:, :, t:at], taps)
        if t == 0:
            runs[-1, :, at] += 1
    of_samples = runs[:-1, :, memory:].transpose(1, 0, 2)
    delay = np.arange(size) - np.arange(size)[:, None]
    of_x = np.where(delay >= 0, runs[-1, :, memory + delay % size].transpose(2, 0, 1), 0)

    samples = x.shape[-1]
    count = -(-samples // size)
    wide = np.zeros((*x.shape[:-1], count * size))
    wide[..., :samples] = x
    y = wide.reshape(*x.shape[:-1], count, size) @ of_x
    for i in range(count):
        y[..., i, :] += (before[..., None, :] @ of_samples)[..., 0, :]
        before = y[..., i, size - memory :]
    return y.reshape(wide.shape)[..., :samples]


def _arrays(name: str, *tensors: Tensor) -> list[np.ndarray]:
    if not all(x.dtype is tensors[0].dtype and x.is_floating_point() for x in tensors):
        got = ", ".join(str(x.dtype) for x in tensors)
        raise RuntimeError(
            f"{name}: expected floating-point tensors of one dtype, got {got}{at_user_line()}"
        )
    return [x.detach().cpu().numpy().astype(np.float64) for x in tensors]


def lfilter_core_loop(waveform: Tensor, a_coeff_flipped: Tensor, padded: Tensor) -> None:
    """Write the filtered waveform behind the first order - 1 samples of `padded`.

    waveform: [batch, channels, samples]. a_coeff_flipped: [channels, order], a[0] = 1 last. padded:
    [batch, channels, order - 1 + samples], which begins with the samples before the first.
    """
    x, flipped, given = _arrays("lfilter", waveform, a_coeff_flipped, padded)
    memory = flipped.shape[1] - 1
    if given.shape != (*x.shape[:-1], memory + x.shape[-1]) or flipped.shape[0] != x.shape[1]:
        raise RuntimeError(
            "lfilter: expected an output of the waveform's shape with order - 1 samples before it, "
            f"and coefficients for each channel, got {tuple(padded.shape)} and "
            f"{tuple(a_coeff_flipped.shape)} for {tuple(waveform.shape)}{at_user_line()}"
        )
    found = recursion(x, flipped[:, ::-1], given[..., :memory])
    padded[..., memory:] = beside(found, padded)


_FEEDBACK = 0.995
"""What SoX's overdrive keeps of the sample before."""


def overdrive_core_loop(
    waveform: Tensor, temp: Tensor, last_in: Tensor, last_out: Tensor, output: Tensor
) -> None:
    """Write SoX's overdrive of a waveform [channels, samples] to `output`: half of it, and three
    quarters of `temp` without its constant part. last_in, last_out: [channels], the samples of
    `temp` and of the filtered one before the first."""
    dry, wet, first, before = _arrays("overdrive", waveform, temp, last_in, last_out)
    steps = np.diff(wet, axis=-1, prepend=first[:, None])
    filters = np.broadcast_to(np.array([1, -_FEEDBACK]), (len(wet), 2))
    filtered = recursion(steps, filters, before[:, None])
    output[...] = beside(dry * 0.5 + filtered * 0.75, output)
