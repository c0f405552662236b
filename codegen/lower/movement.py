"""Movement ops as maps of places: from an element of the result to the one in the operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.shape import contiguous_strides

from ..kernel import Condition
from ..kernel import index as ix
from ..kernel.domain import Place
from ..kernel.index import Index
from ..ops import flat, part


def _permute(place: Place, node: Node) -> Place:
    (order,) = node.attrs
    out: list[Index] = [ix.ZERO] * len(order)
    for position, dim in zip(place, order, strict=True):
        out[dim] = position
    return tuple(out)


def narrow(place: Place, shape: Sequence[int]) -> Place:
    """A place in a tensor of `shape` that was broadcast: leading and size-1 dimensions drop out."""
    lead = len(place) - len(shape)
    return tuple(ix.ZERO if s == 1 else p for p, s in zip(place[lead:], shape, strict=True))


def _expand(place: Place, node: Node) -> Place:
    return narrow(place, node.operands[0].shape)


def _slice(place: Place, node: Node) -> Place:
    starts, _, steps = node.attrs
    moved = zip(place, node.operands[0].shape, starts, steps, strict=True)
    return tuple(p * step + start if n != 1 else ix.ZERO for p, n, start, step in moved)


def _flip(place: Place, node: Node) -> Place:
    (axes,) = node.attrs
    return tuple(
        p * -1 + (n - 1) if i in axes else p
        for i, (p, n) in enumerate(zip(place, node.shape, strict=True))
    )


def reshaped(place: Place, shape: Sequence[int], target: Sequence[int]) -> Place:
    """The place in `target` of the element that is at a place in `shape`, in row-major order."""
    if [s for s in shape if s != 1] == [s for s in target if s != 1]:
        rest = (p for p, s in zip(place, shape, strict=True) if s != 1)
        return tuple(ix.ZERO if s == 1 else next(rest) for s in target)
    # The last dimensions that both have stay as they are. A guard may let a window's position in
    # one of them lie outside; it must not carry over into the dimensions before.
    same = 0
    while same < min(len(shape), len(target)) and shape[-1 - same] == target[-1 - same]:
        same += 1
    cut, kept = len(shape) - same, len(target) - same
    offset = ix.linearize(place[:cut], contiguous_strides(shape[:cut]))
    return (*ix.delinearize(offset, target[:kept]), *place[cut:])


def _windows(place: Place, node: Node) -> Place:
    shape = node.operands[0].shape
    axes, _, steps, dilations = node.attrs
    out = list(place[: len(shape)])
    for position, axis, step, dilation in zip(
        place[len(shape) :], axes, steps, dilations, strict=True
    ):
        out[axis] = place[axis] * step + position * dilation if shape[axis] != 1 else ix.ZERO
    return tuple(out)


def _reshape(place: Place, node: Node) -> Place:
    return reshaped(place, node.shape, node.operands[0].shape)


def _flat(place: Place, node: Node) -> Place:
    return (*place[:-1], ix.floordiv(place[-1], 2))


_MAPS: dict[Op, Callable[[Place, Node], Place]] = {
    ops.reshape_op: _reshape,
    ops.permute_op: _permute,
    ops.expand_op: _expand,
    ops.slice_op: _slice,
    ops.flip_op: _flip,
    ops.windows_op: _windows,
    part: lambda place, node: place,
    flat: _flat,
}
"""The map from a place in a node with one operand to the place in that operand."""


def source(node: Node, place: Place) -> Place:
    """The place in the one operand of `node` from which its element at `place` comes."""
    return _MAPS[node.op](place, node)


def is_map(node: Node) -> bool:
    """Whether `source` holds for the node: every element comes from one operand."""
    return node.op in _MAPS


def is_bijection(node: Node) -> bool:
    """Whether the result has every element of the operand once, so that `target` exists."""
    return node.op.bijective


def target(node: Node, place: Place) -> Place:
    """The inverse of `source`, for a bijection: where the operand's element at `place` goes."""
    operand = node.operands[0]
    if node.op is ops.reshape_op:
        return reshaped(place, operand.shape, node.shape)
    if node.op is ops.flip_op:
        return _flip(place, node)
    return tuple(place[dim] for dim in node.attrs[0])


def pad_source(node: Node, place: Place) -> tuple[list[Condition], Place] | None:
    """(conditions, place): where a padded tensor holds its operand, and the place there; None if it
    holds nothing of it."""
    low, _, interior = node.attrs
    conditions: list[Condition] = []
    inside: list[Index] = []
    for p, n, before, between in zip(place, node.operands[0].shape, low, interior, strict=True):
        if n == 0:
            return None
        step = between + 1
        shifted = p - before
        conditions.append(Condition(shifted, 0, (n - 1) * step + 1))
        if step > 1 and n > 1:
            conditions.append(Condition(ix.mod(shifted, step), 0, 1))
        inside.append(ix.floordiv(shifted, step) if n != 1 else ix.ZERO)
    kept = simplified(conditions)
    return None if kept is None else (kept, tuple(inside))


def simplified(conditions: Sequence[Condition]) -> list[Condition] | None:
    """The conditions that may fail; None if one of them always fails."""
    kept = []
    for condition in conditions:
        low, high = condition.index.bounds()
        if high < condition.low or low >= condition.high:
            return None
        if low < condition.low or high >= condition.high:
            kept.append(condition)
    return kept


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)
