"""Contractions of one column as sums of products: they have no use for tiles, memory is what they
wait for. Sums of half types are in float32."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.ops.composite import as_dtype, widen

from .target import Target

_FEW = 1 << 15
"""Up to so many products a matrix times a vector stays what it is."""


@dataclass(frozen=True)
class SumVectors:
    """A matrix times a vector folds the rows of the matrix."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op is not ops.matmul or not self.target.vector_sums or node.shape[-1] != 1:
            return None
        a, b = node.operands
        if math.prod(node.shape) * a.shape[-1] <= _FEW or not a.dtype.is_floating_point:
            return None
        turned = ops.permute(b, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
        whole = (*node.shape[:-1], a.shape[-1])
        products = ops.expand(widen(a), whole) * ops.expand(widen(turned), whole)
        return as_dtype(ops.sum(products, (node.rank - 1,)), node.dtype)


@dataclass(frozen=True)
class SumDepthwise:
    """A depthwise convolution folds windows."""

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
