"""Updates at positions that are data, for targets that don't run them one after another.

A stable sort of the positions makes values for one element neighbours. Then one program adds them
up, in a fixed order, without atomics. It serves the gradients of embeddings and of indexing,
`index_add`, `scatter_add` and their relatives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, accumulator
from tilewright.ir.node import Node
from tilewright.ir.rewrite import on
from tilewright.ir.shape import contiguous_strides

from ..lower.scatter import meeting
from ..ops import grouped_scatter
from .sorting import in_order, positions_of, words_of

LEAST = 32
"""The least updates of one element. Fewer are made one after another."""
LONG = 64
"""Groups that are longer on average are summed in parts."""


@on(ops.scatter)
def group_updates(node: Node) -> Node | None:
    """A scatter of many values, with the values for one place brought together."""
    if node.dtype.category == BOOL or 0 in node.operands[1].shape:
        return None
    if meeting(node) < LEAST:
        return None
    base, values, *indices = node.operands
    axis, mode = node.attrs
    placed = values.rank - (base.rank - len(indices))
    shape = tuple(values.shape[axis : axis + placed])
    count = math.prod(shape)
    flat = [_line(index, shape) for index in indices]
    sizes = base.shape[axis : axis + len(indices)]
    lined = ops.reshape(values, (*values.shape[:axis], count, *values.shape[axis + placed :]))
    parts = _parts(count, math.prod(sizes)) if mode == "add" else 1
    if parts == 1:
        return _grouped(base, lined, flat, axis, mode)
    wide = accumulator(base.dtype)
    zeros = ops.expand(ops.constant(0, wide), (*base.shape[:axis], parts, *base.shape[axis:]))
    flat.insert(0, _part(count, parts))
    sums = ops.sum(_grouped(zeros, ops.cast(lined, wide), flat, axis, mode), (axis,))
    total = ops.cast(base, wide) + ops.squeeze(sums, (axis,))
    return ops.cast(total, base.dtype)


def _line(index: Node, shape: Sequence[int]) -> Node:
    return ops.reshape(ops.expand(index, shape), (math.prod(shape),))


def _parts(count: int, places: int) -> int:
    """The number of parts that keeps groups not much longer than LONG, if all groups are alike. A
    few long groups would keep few programs busy."""
    return 1 << (count // (places * LONG)).bit_length()


def _part(count: int, parts: int) -> Node:
    """The part to which each of `count` updates belongs."""
    size = -(-count // parts)
    number = ops.expand(ops.reshape(ops.iota(parts), (parts, 1)), (parts, size))
    return ops.slice_axis(ops.reshape(number, (parts * size,)), 0, 0, count)


def _grouped(base: Node, values: Node, indices: Sequence[Node], axis: int, mode: str) -> Node:
    """The scatter along `axis` of values in the order of their places."""
    sizes = base.shape[axis : axis + len(indices)]
    place = functools.reduce(ops.add, map(_scaled, indices, contiguous_strides(sizes)))
    bits = (math.prod(sizes) - 1).bit_length() + 1
    order = positions_of(in_order(words_of(place, bits, 0), 0), place.shape[0])
    moved = [ops.gather(index, order, 0) for index in indices]
    return grouped_scatter(base, ops.gather(values, order, axis), *moved, axis, mode)


def _scaled(index: Node, stride: int) -> Node:
    return index if stride == 1 else index * ops.constant(stride, index.dtype)
