"""Sums of rows of a table at several places with weights, as those of sampled images: each row is
read where it is, and added to its sum."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import float32, float64
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside

from . import copies, rows, views

Form = Callable[..., Any]

_FROM = 1 << 14
"""Elements of all rows that are read from which this is faster."""


def weighted(node: Node) -> tuple[list[Node], Form] | None:
    """What the sum of where(seen, table[places] * weight, 0) over the axes of the taps reads, and
    its form; None for other sums. There may be several masks, or none.

    table: [*sizes, width]. places, weight and masks: [*placed, *taps], which may broadcast.
    """
    (value,), (axes,) = node.operands, node.attrs
    rank = value.rank - 1  # of the places
    if node.dtype not in (float32, float64) or value.shape.numel() < _FROM:
        return None
    if not rank or tuple(axes) != tuple(range(rank - len(axes), rank)):
        return None
    masks = []
    while value.op is ops.where:
        mask, value, other = value.operands
        if not views.is_zero(other):
            return None
        masks.append(mask)
    if value.op is not ops.mul:
        return None
    taken, weight = value.operands
    if taken.op is not ops.gather or taken.dtype is not node.dtype or taken.shape != value.shape:
        return None
    table, *places = taken.operands
    small = [_by_place(n, value.shape) for n in (weight, *masks)]
    if taken.attrs != (0,) or table.rank != len(places) + 1 or None in small:
        return None
    run = rows.adding(node.dtype)
    if run is None:
        return None
    form = _form(tuple(node.shape), math.prod(node.shape[:-1]), len(places), run)
    return [table, *places, *[n for n in small if n is not None]], form


def _by_place(node: Node, shape: tuple[int, ...]) -> Node | None:
    """A node that is the same for all elements of a row, without what repeats it; None for
    others."""
    while node.op is ops.expand_op and node.operands[0].rank == len(shape):
        (node,) = node.operands
    return node if node.rank == len(shape) and node.shape[-1] == 1 else None


def _form(shape: tuple[int, ...], count: int, indices: int, run: Callable[..., Any]) -> Form:
    def form(table: Any, *given: Any) -> Any:
        places, (weight, *masks) = given[:indices], given[indices:]
        sizes, width = table.shape[:-1], table.shape[-1]
        if not all(map(are_inside, places, sizes)):
            raise IndexError("a position is out of range")
        placed = np.broadcast_shapes(*[p.shape for p in places])
        steps = [math.prod(sizes[i + 1 :]) for i in range(indices)]
        sources = sum((p * step for p, step in zip(places, steps)), np.zeros(placed, np.int64))
        taps = math.prod(placed) // count
        sums = np.broadcast_to(np.arange(count)[:, None], (count, taps)).reshape(-1)
        sources = sources.reshape(-1)
        factors = np.broadcast_to(weight[..., 0], placed).reshape(-1)
        if not all([mask.all() for mask in masks]):
            seen = np.ones(placed, np.bool_)
            for mask in masks:
                seen &= mask[..., 0]
            kept = seen.reshape(-1)
            sums, sources, factors = sums[kept], sources[kept], factors[kept]
        out = np.zeros((count, width), table.dtype)
        run((out, copies.in_order(table), sums, sources, factors), (len(sums), width))
        return out.reshape(shape)

    return form
