"""The gradient of a strided convolution in its input, or a transposed convolution, without zeros.

A place i of the result meets only some of the kernel's taps. Places with the same remainder of
(i + padding) / stride meet the same taps. So all remainders together are the channels of one
convolution with stride 1 over the small image; interleaved, its channels give the result
("sub-pixel convolution"; Shi and others, arXiv 1609.05158). Products with zeros remain only where a
remainder has fewer taps than others.

With stride 1 there is one remainder: a convolution, whose image is read by vectors even if it has
few channels (few_channels.py).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.rewrite import on

from ..target import Target
from .few_channels import is_vector


@on(ops.conv_input_grad)
@dataclass(frozen=True)
class InterleaveStrides:
    target: Target

    def __call__(self, node: Node) -> Node | None:
        if not self.target.interleaved_strides:
            return None
        g, w = node.operands
        sizes, strides, padding, dilation, groups = node.attrs
        if set(dilation) != {1} or 0 in (*g.shape, *node.shape):
            return None
        whole = all(is_vector(n, node.dtype) for n in (w.shape[0] // groups, w.shape[1]))
        if set(strides) == {1} and (whole or not self.target.turns(node.dtype)):
            return None
        taps = [-(-k // s) for k, s in zip(w.shape[2:], strides, strict=True)]
        reached = [min(k, s) for k, s in zip(w.shape[2:], strides, strict=True)]
        # (i + low) // stride is from `first` on, at `count` places.
        first = [low // s for (low, _), s in zip(padding, strides, strict=True)]
        last = [(low + n - 1) // s for (low, _), n, s in zip(padding, sizes, strides, strict=True)]
        count = [b - a + 1 for a, b in zip(first, last, strict=True)]
        lows = [t - 1 - a for t, a in zip(taps, first, strict=True)]
        highs = [
            n + t - 1 - low - size
            for n, t, low, size in zip(count, taps, lows, g.shape[2:], strict=True)
        ]
        ones = (1,) * len(taps)
        around = tuple(zip((max(n, 0) for n in lows), (max(n, 0) for n in highs), strict=True))
        small = ops.conv(
            _cropped(g, lows, highs), _parts(w, taps, reached, groups), ones, around, ones, groups
        )
        return _interleaved(
            small,
            sizes,
            strides,
            reached,
            [low - a * s for (low, _), a, s in zip(padding, first, strides, strict=True)],
        )


def _cropped(g: Node, lows: list[int], highs: list[int]) -> Node:
    """`g` without what negative paddings take off."""
    for axis, (low, high) in enumerate(zip(lows, highs, strict=True), 2):
        g = ops.slice_axis(g, axis, max(-low, 0), g.shape[axis] - max(-high, 0))
    return g


def _parts(w: Node, taps: list[int], reached: list[int], groups: int) -> Node:
    """w[o, c / groups, *kernel] as [c * remainders, o / groups, *taps] in reverse order of taps,
    for the remainders that have taps."""
    outputs, channels, *kernel = w.shape
    rank = len(kernel)
    whole = [t * m for t, m in zip(taps, reached, strict=True)]
    high = [0, 0, *(n - k for n, k in zip(whole, kernel, strict=True))]
    padded = ops.pad(w, (0,) * (2 + rank), high)
    split = [n for pair in zip(taps, reached, strict=True) for n in pair]
    cut = ops.reshape(padded, (groups, outputs // groups, channels, *split))
    tap_axes, rest_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = ops.permute(ops.flip(cut, tuple(tap_axes)), (0, 2, *rest_axes, 1, *tap_axes))
    return ops.reshape(turned, (groups * channels * math.prod(reached), outputs // groups, *taps))


def _interleaved(
    x: Node,
    sizes: tuple[int, ...],
    strides: tuple[int, ...],
    reached: list[int],
    starts: list[int],
) -> Node:
    """x[n, c * remainders, *count] as [n, c, *sizes], zero at remainders without taps."""
    batch, channels, *count = x.shape
    rank = len(count)
    channels //= math.prod(reached)
    apart = ops.reshape(x, (batch, channels, *reached, *count))
    order = [axis for i in range(rank) for axis in (2 + rank + i, 2 + i)]
    whole = [n * s for n, s in zip(count, strides, strict=True)]
    between = [n for s, m in zip(strides, reached, strict=True) for n in (0, s - m)]
    full = ops.pad(ops.permute(apart, (0, 1, *order)), (0,) * apart.rank, (0, 0, *between))
    y = ops.reshape(full, (batch, channels, *whole))
    for axis, (start, size) in enumerate(zip(starts, sizes, strict=True), 2):
        y = ops.slice_axis(y, axis, start, start + size)
    return y
