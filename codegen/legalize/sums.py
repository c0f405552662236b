"""Contractions with one column become sums of products: tiles would not help them, since they wait
for memory. Sums of half types are in float32."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import DType, accumulator
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.composite import as_dtype, to_accumulator
from tilewright.ir.rewrite import on
from tilewright.ir.shape import Ints, Pairs, broadcast

from ..target import Target

_FEW = 1 << 15
"""A matrix times a vector stays a product up to so many terms."""
_PRODUCTS = (ops.matmul, ops.matmul_wide, ops.integer_matmul)
_OUTPUTS = 8
"""The most output channels for each input channel of a depthwise convolution."""


@on(*_PRODUCTS)
@dataclass(frozen=True)
class SumVectors:
    """Turns a matrix times a vector into folds of the matrix's rows. So it does with few vectors if
    the matrix lies in memory in bytes: these are what such a product waits for."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        a, b = node.operands
        is_large = math.prod(node.shape) * a.shape[-1] > _FEW
        if is_large or node.op is ops.integer_matmul:
            if node.shape[-1] <= self.target.byte_sums and _in_bytes(a):
                return _columns(a, b, node.dtype)
            if node.shape[-2] <= self.target.byte_sums and _in_bytes(b):
                return ops.transpose(_columns(ops.transpose(b), ops.transpose(a), node.dtype))
        if not is_large or node.shape[-1] > 1 or a.dtype.name not in self.target.vector_sums:
            return None
        turned = ops.permute(b, (*range(b.rank - 2), b.rank - 1, b.rank - 2))
        whole = (*node.shape[:-1], a.shape[-1])
        products = ops.expand(to_accumulator(a), whole) * ops.expand(to_accumulator(turned), whole)
        return as_dtype(ops.sum(products, (node.rank - 1,)), node.dtype)


def _in_bytes(node: Node) -> bool:
    """Whether a matrix lies in memory in integers of a byte, in rows along its last axis or turned,
    and is converted on its way if at all."""
    while node.op.kind is Kind.MOVEMENT or node.op is ops.cast:
        node = node.operands[0]
    is_byte = node.dtype.itemsize == 1 and not node.dtype.is_floating_point
    return is_byte and node.op is ops.leaf


def _columns(a: Node, b: Node, dtype: DType) -> Node:
    """a[..., m, k] @ b[..., k, n] for a small n: a row of `a` is read once, for all columns."""
    wide = accumulator(dtype)
    (*front, m, k), (*more, _, n) = a.shape, b.shape
    rows = ops.reshape(a, (*front, m, 1, k))
    turned = ops.reshape(ops.transpose(b), (*more, 1, n, k))
    shape = (*broadcast(front, more), m, n, k)
    # Widened behind the movement: what many rows read is kept as narrow as it is.
    each, factor = (as_dtype(ops.expand(x, shape), wide) for x in (rows, turned))
    total = ops.sum(each * factor, (len(shape) - 1,))
    return as_dtype(ops.reshape(total, shape[:-1]), dtype)


@dataclass(frozen=True)
class SumDepthwise:
    """Turns a depthwise convolution, or a gradient of one, into folds of windows."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        rule = _DEPTHWISE.get(node.op)
        if rule is None or not self.target.depthwise_sums or 0 in node.shape:
            return None
        groups = node.attrs[-1]
        weight = node if node.op is ops.conv_weight_grad else node.operands[1]
        each = weight.shape[0] // groups
        few = each == 1 or (groups > 1 and each <= _OUTPUTS and node.op is ops.conv)
        return rule(node) if weight.shape[1] == 1 and few else None


def _forward(node: Node) -> Node:
    x, w = node.operands
    strides, padding, dilation, _ = node.attrs
    return _summed(x, w, strides, padding, dilation)


def _input_grad(node: Node) -> Node | None:
    """With stride 1: the sum of windows with the kernel turned around."""
    g, w = node.operands
    _, strides, padding, dilation, _ = node.attrs
    reach = [d * (k - 1) for d, k in zip(dilation, w.shape[2:], strict=True)]
    border = tuple((r - low, r - high) for r, (low, high) in zip(reach, padding, strict=True))
    if any(s != 1 for s in strides) or any(b < 0 for pair in border for b in pair):
        return None
    return _summed(g, ops.flip(w, tuple(range(2, w.rank))), strides, border, dilation)


def _weight_grad(node: Node) -> Node:
    """The products of each tap with its window, summed over the batch and all places."""
    g, x = node.operands
    kernel, strides, padding, dilation, _ = node.attrs
    seen = _windows(x, kernel, strides, padding, dilation)
    each = ops.reshape(g, (*g.shape, *(1 for _ in kernel)))
    products = to_accumulator(seen) * ops.expand(to_accumulator(each), seen.shape)
    summed = ops.sum(products, (0, *range(2, x.rank)))
    return as_dtype(ops.reshape(summed, node.shape), node.dtype)


def _summed(x: Node, w: Node, strides: Ints, padding: Pairs, dilation: Ints) -> Node:
    """The convolution of x[n, c, *in] with w[c * each, 1, *kernel]."""
    count, kernel = x.shape[1], w.shape[2:]
    each = w.shape[0] // count
    seen = ops.unsqueeze(_windows(x, kernel, strides, padding, dilation), 2)
    whole = (*seen.shape[:2], each, *seen.shape[3:])
    taps = ops.reshape(w, (1, count, each, *(1 for _ in kernel), *kernel))
    products = ops.expand(to_accumulator(seen), whole) * ops.expand(to_accumulator(taps), whole)
    summed = ops.sum(products, tuple(range(x.rank + 1, seen.rank)))
    out = (x.shape[0], w.shape[0], *seen.shape[3 : x.rank + 1])
    return as_dtype(ops.reshape(summed, out), x.dtype)


def _windows(x: Node, kernel: Ints, strides: Ints, padding: Pairs, dilation: Ints) -> Node:
    """[n, c, *out, *kernel]"""
    padded = ops.pad(x, (0, 0, *(low for low, _ in padding)), (0, 0, *(h for _, h in padding)))
    return ops.windows(padded, range(2, x.rank), kernel, strides, dilation)


_DEPTHWISE: dict[Op, Callable[[Node], Node | None]] = {
    ops.conv: _forward,
    ops.conv_input_grad: _input_grad,
    ops.conv_weight_grad: _weight_grad,
}
