"""Depthwise convolutions as sums over windows: a product of one column has no use for tiles."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.composite import as_dtype, widen

from .target import Target


@dataclass(frozen=True)
class SumDepthwise:
    """Sums are in float32, also those of half types."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op is not ops.conv or not self.target.depthwise_sums or 0 in node.shape:
            return None
        x, w = node.operands
        strides, padding, dilation, groups = node.attrs
        if w.shape[:2] != (groups, 1):
            return None
        kernel = w.shape[2:]
        places = range(2, x.rank)
        padded = ops.pad(x, (0, 0, *(low for low, _ in padding)), (0, 0, *(h for _, h in padding)))
        seen = ops.windows(padded, places, kernel, strides, dilation)
        taps = ops.reshape(w, (1, groups, *(1 for _ in places), *kernel))
        products = widen(seen) * ops.expand(widen(taps), seen.shape)
        summed = ops.sum(products, tuple(range(x.rank, seen.rank)))
        return as_dtype(ops.reshape(summed, node.shape), node.dtype)
