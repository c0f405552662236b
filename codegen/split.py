"""Long sums of few results in two steps: of parts, then of what the parts gave.

One step would leave most of the machine idle. The parts are cut by size alone, so the order of
additions is the same on every run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from .target import Target


@dataclass(frozen=True)
class SplitFolds:
    """A fold of long rows, or of columns, of which there are too few to keep the machine busy."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op.kind is not Kind.REDUCE or node.op.name in ("argmax", "argmin"):
            return None
        (x,) = node.operands
        (axes,) = node.attrs
        points = math.prod(node.shape)
        length = math.prod(x.shape[a] for a in axes)
        longest, least = self.target.long_row, 64
        if self.target.columns and x.rank - 1 not in axes:
            points = -(-points // self.target.columns)  # one program folds so many of them
            longest, least = self.target.long_row >> 7, 16
        if not points or points >= self.target.parallel or length < longest:
            return None
        axis = max(axes, key=lambda a: x.shape[a])
        parts = self._parts(x.shape[axis], points, length)
        if parts is None or length // parts < least:
            return None
        size = x.shape[axis] // parts
        cut = ops.reshape(x, (*x.shape[:axis], parts, size, *x.shape[axis + 1 :]))
        within = sorted(axis + 1 if a == axis else a + (a > axis) for a in axes)
        partial = node.op(cut, tuple(within))
        return ops.reshape(node.op(partial, (axis,)), node.shape)

    def _parts(self, extent: int, points: int, length: int) -> int | None:
        """Into how many parts an axis is cut: enough to fill the machine."""
        wanted = 4 * self.target.parallel
        for parts in range(2, extent + 1):
            enough = parts * points >= wanted or parts * parts >= length
            if extent % parts == 0 and enough:
                return parts
        return None


@dataclass(frozen=True)
class SplitProducts:
    """A matrix product of few tiles and a long K as a batch of products, whose sum is taken then.

    Sums of parts are in float32, also those of half types.
    """

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op is not ops.matmul or node.dtype.name not in self.target.split_products:
            return None
        a, b = node.operands
        parts = self._parts(node, a.shape[-1])
        if parts is None:
            return None
        size = a.shape[-1] // parts
        rank = a.rank - 2
        cut = ops.reshape(a, (*a.shape[:-1], parts, size))
        left = ops.permute(cut, (*range(rank), rank + 1, rank, rank + 2))
        right = ops.reshape(b, (*b.shape[:-2], parts, size, b.shape[-1]))
        products = ops.matmul(left, right)
        if node.dtype is not float32:
            products = ops.cast(products, float32)
        total = ops.reshape(ops.sum(products, (products.rank - 3,)), node.shape)
        return total if node.dtype is float32 else ops.cast(total, node.dtype)

    def _parts(self, node: Node, inner: int) -> int | None:
        """Into how many parts K is cut: as many as the machine has room for, if that saves time."""
        chip = self.target.chip
        *batch, rows, columns = node.shape
        edges = [64 if size <= 64 else 128 for size in (rows, columns)]
        tiles = -(-rows // edges[0]) * -(-columns // edges[1]) * math.prod(batch)
        parts = 1
        while 2 * parts * tiles <= chip.multiprocessors and inner % (128 * parts) == 0:
            parts *= 2
        while parts > 1 and inner // parts < _LEAST:
            parts //= 2
        if parts == 1:
            return None
        rate = chip.flops(node.dtype, self.target.tf32) / chip.multiprocessors
        saved = 2 * edges[0] * edges[1] * (inner - inner // parts) / rate
        more = 8 * parts * math.prod(node.shape) / chip.bandwidth + _LAUNCH
        return parts if saved > more else None


_LEAST = 256  # places of K in a part
_LAUNCH = 3e-6  # seconds
