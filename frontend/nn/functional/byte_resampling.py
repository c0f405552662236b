"""Resizing of images of bytes, in whole numbers.

Each axis is one product with a matrix of weights, the last axis first, and each product is rounded
to bytes. Weights are multiples of a power of two that fit into 16 bits, as in Pillow,
so results have the bits of PyTorch's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import float64, uint8
from tilewright.ir.node import Node

from ...functions.from_data import beside
from ...functions.promotion import to
from ...recording import record
from ...recording.builders import builder

if TYPE_CHECKING:
    from ..._tensor import Tensor

_MOST_BITS = 22  # of a weight's fraction


def resized_bytes(
    input: Tensor,
    sizes: tuple[int, ...],
    scales: tuple[float, ...],
    cubic: bool,
    aligned: bool,
    antialias: bool,
) -> Tensor:
    """input[n, c, …], uint8, with its spatial dimensions in `sizes`; scales: input elements for
    one of the result."""
    for axis in reversed(range(len(sizes))):
        size, out, scale = input.shape[axis + 2], sizes[axis], scales[axis]
        if aligned:
            scale = (size - 1) / (out - 1) if out > 1 else 0.0
        if out == size and scale == 1:
            continue
        weights = (_smooth if antialias else _sharp)(size, out, scale, cubic, aligned)
        bits = _bits(float(weights.max()))
        whole = np.trunc(weights * 2.0**bits + np.copysign(0.5, weights))
        input = record(_product, input, beside(whole, input), axis + 2, bits)
    return input


@builder("resized_bytes")
def _product(x: Node, weights: Node, axis: int, bits: int) -> Node:
    """Sums along an axis in float64, where they are exact, over 2 ** bits and rounded to bytes."""
    moved = ops.transpose(to(x, float64), axis, x.rank - 1)
    sums = ops.matmul(moved, ops.transpose(weights))
    rounded = ops.floor((sums + 2.0 ** (bits - 1)) * 2.0**-bits)
    return to(ops.transpose(ops.clamp(rounded, 0, 255), axis, x.rank - 1), uint8)


def _bits(largest: float) -> int:
    """As many bits of a fraction as keep the largest weight below 2 ** 15."""
    return next(
        b for b in range(_MOST_BITS + 1) if b == _MOST_BITS or largest * 2 ** (b + 1) >= 2**15 - 0.5
    )


def _smooth(size: int, out: int, scale: float, cubic: bool, aligned: bool) -> np.ndarray[Any, Any]:
    """A kernel as wide as `scale` elements [out, size], with a sum of one."""
    wide = max(scale, 1.0)
    reach = (2 if cubic else 1) * wide
    centre = ((np.arange(out) + 0.5) * scale)[:, None]
    place = np.arange(size)
    weights = _kernel(cubic, -0.5)((place - centre + 0.5) / wide)
    first = np.maximum((centre - reach + 0.5).astype(np.int64), 0)
    end = np.minimum((centre + reach + 0.5).astype(np.int64), size)
    weights = np.where((place >= first) & (place < end), weights, 0.0)
    return weights / weights.sum(1, keepdims=True)


def _sharp(size: int, out: int, scale: float, cubic: bool, aligned: bool) -> np.ndarray[Any, Any]:
    """Two or four taps around each place [out, size]; those outside fall on the border."""
    place = np.arange(out) * scale if aligned else (np.arange(out) + 0.5) * scale - 0.5
    if not cubic:
        place = np.maximum(place, 0)
    weights = np.zeros((out, size))
    for tap in range(-1, 3) if cubic else range(2):
        at = np.floor(place).astype(np.int64) + tap
        np.add.at(
            weights, (np.arange(out), np.clip(at, 0, size - 1)), _kernel(cubic, -0.75)(at - place)
        )
    return weights


def _kernel(cubic: bool, a: float) -> Callable[[Any], Any]:
    if not cubic:
        return lambda d: np.maximum(1 - np.abs(d), 0)

    def keys(d: Any) -> Any:
        d = np.abs(d)
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d < 1, near, np.where(d < 2, far, 0.0))

    return keys
