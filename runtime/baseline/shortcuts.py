"""Nodes that are computed from what their operands read: the operands themselves would be large, as
each element beside each of a list, or positions that follow from the place."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, SIGNED, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside

from . import folds, joins, samples, views

Form = Callable[..., Any]
Found = tuple[list[Node], Form]
"""What a form reads, and the form."""

_FROM = 1 << 12
"""Elements from which a shortcut is worth it."""


def of(node: Node) -> Found | None:
    """A shortcut to the value of a node; None if there is none."""
    return OPS[node.op](node) if node.op in OPS else None


def _gather(node: Node) -> Found | None:
    found = views.strided(node)
    return joins.rows(node) if found is None else ([found[0]], found[1])


def _membership(node: Node) -> Found | None:
    """any(x[..., None] == values), as in `isin`: whether each element is among the values."""
    (equal,) = node.operands
    last = equal.rank - 1
    if equal.op is not ops.eq or node.attrs != ((last,),) or equal.shape.numel() < _FROM:
        return None
    for x, values in (equal.operands, equal.operands[::-1]):
        is_list = values.rank > 0 and values.shape.numel() == values.shape[-1] > 1
        if is_list and x.rank == equal.rank and x.shape == node.shape:
            return [x, values], lambda x, values: np.isin(x, values)
    return None


def _one_hot(node: Node) -> Found | None:
    """cast(index[..., None] == arange(count)): a one in each row of zeros."""
    (equal,) = node.operands
    is_mask = equal.dtype.category == BOOL and equal.op is ops.eq
    if not is_mask or node.dtype.category == BOOL or node.shape.numel() < _FROM:
        return None
    for index, counted in (equal.operands, equal.operands[::-1]):
        kept = (*node.shape[:-1], 1)
        if index.shape == kept and _is_count(counted, node.shape[-1]):
            rows = (math.prod(kept), node.shape[-1])
            is_whole = index.dtype.category == SIGNED
            return ([index], functools.partial(_ones, node, rows)) if is_whole else None
    return None


def _is_count(node: Node, size: int) -> bool:
    """Whether a node is the positions along a last axis of `size`."""
    while node.op is ops.reshape_op or node.op is ops.expand_op:
        if node.shape.numel() != node.shape[-1]:
            return False
        (node,) = node.operands
    return node.op is ops.iota and node.shape == (size,)


def _ones(node: Node, rows: tuple[int, int], index: Any) -> Any:
    out = np.zeros(rows, node.dtype.np)
    at, each = np.ravel(index), np.arange(rows[0])
    if not are_inside(at, rows[1]):
        here = (at >= 0) & (at < rows[1])
        at, each = at[here], each[here]
    out[each, at] = 1
    return out.reshape(tuple(node.shape))


def _sum(node: Node) -> Found | None:
    return samples.weighted(node) or _sum_of_numbers(node)


def _sum_of_numbers(node: Node) -> Found | None:
    """The sum of rows with zeros in the place of NaN: most have none, which their sum tells."""
    (chosen,), (axes,) = node.operands, node.attrs
    if chosen.op is not ops.where or chosen.shape.numel() < _FROM:
        return None
    mask, zero, x = chosen.operands
    is_nan = mask.op is ops.ne and mask.operands == (x, x) and x.dtype in (float32, float64)
    rows_come_first = sorted(axes) == list(range(len(axes))) and len(axes) < x.rank
    if not is_nan or not rows_come_first or not views.is_zero(zero):
        return None
    total = folds.total(x, axes)

    def form(x: Any) -> Any:
        found = total(x)
        return total(np.where(np.isnan(x), 0, x)) if np.isnan(found).any() else found

    return [x], form


OPS: dict[Any, Callable[[Node], Found | None]] = {
    ops.gather: _gather,
    ops.any_op: _membership,
    ops.cast: _one_hot,
    ops.sum_op: _sum,
}
"""Ops whose nodes may have a shortcut."""
