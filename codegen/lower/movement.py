"""Movement ops as maps of places: where an element of the result comes from in the operand."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.node import Node
from tilewright.ir.shape import contiguous_strides

from ..kernel import Condition
from ..kernel import index as ix
from ..kernel.domain import Place
from ..kernel.index import Index


def _permute(place: Place, shape: Sequence[int], order: tuple[int, ...]) -> Place:
    out: list[Index] = [ix.ZERO] * len(order)
    for position, dim in zip(place, order, strict=True):
        out[dim] = position
    return tuple(out)


def narrow(place: Place, shape: Sequence[int]) -> Place:
    """A place in a tensor of `shape` that was broadcast: leading and size-1 dimensions drop out."""
    lead = len(place) - len(shape)
    return tuple(ix.ZERO if s == 1 else p for p, s in zip(place[lead:], shape, strict=True))


def _expand(place: Place, shape: Sequence[int], target: tuple[int, ...]) -> Place:
    return narrow(place, shape)


def _slice(place: Place, shape: Sequence[int], starts: Any, stops: Any, steps: Any) -> Place:
    moved = zip(place, shape, starts, steps, strict=True)
    return tuple(p * step + start if n != 1 else ix.ZERO for p, n, start, step in moved)


def _flip(place: Place, shape: Sequence[int], axes: tuple[int, ...]) -> Place:
    return tuple(
        p * -1 + (n - 1) if i in axes else p
        for i, (p, n) in enumerate(zip(place, shape, strict=True))
    )


def reshaped(place: Place, shape: Sequence[int], target: Sequence[int]) -> Place:
    """A place in `shape`, as the place in `target` that holds the same row-major element."""
    if [s for s in shape if s != 1] == [s for s in target if s != 1]:
        rest = (p for p, s in zip(place, shape, strict=True) if s != 1)
        return tuple(ix.ZERO if s == 1 else next(rest) for s in target)
    # The last dimensions that both have stay as they are. A window's position in one of them may
    # be outside, guarded by a condition, and would be carried into those before it.
    same = 0
    while same < min(len(shape), len(target)) and shape[-1 - same] == target[-1 - same]:
        same += 1
    cut, kept = len(shape) - same, len(target) - same
    offset = ix.linearize(place[:cut], contiguous_strides(shape[:cut]))
    return (*ix.delinearize(offset, target[:kept]), *place[cut:])


def _windows(
    place: Place, shape: Sequence[int], axes: Any, sizes: Any, steps: Any, dilations: Any
) -> Place:
    out = list(place[: len(shape)])
    for position, axis, step, dilation in zip(
        place[len(shape) :], axes, steps, dilations, strict=True
    ):
        out[axis] = place[axis] * step + position * dilation if shape[axis] != 1 else ix.ZERO
    return tuple(out)


_MAPS: dict[str, Callable[..., Place]] = {
    "permute": _permute,
    "expand": _expand,
    "slice": _slice,
    "flip": _flip,
    "windows": _windows,
}


def source(node: Node, place: Place) -> Place:
    """The place in the one operand of `node` that its element at `place` comes from."""
    operand = node.operands[0]
    if node.op.name == "reshape":
        return reshaped(place, node.shape, operand.shape)
    return _MAPS[node.op.name](place, operand.shape, *node.attrs)


def is_map(node: Node) -> bool:
    """Whether `source` holds for the node: every element comes from one operand."""
    return node.op.name == "reshape" or node.op.name in _MAPS


def is_bijection(node: Node) -> bool:
    """Whether every element of the operand occurs once in the result, as `target` tells."""
    return node.op.name in ("permute", "reshape", "flip")


def target(node: Node, place: Place) -> Place:
    """The inverse of `source`, for a bijection: where the operand's element at `place` goes."""
    operand = node.operands[0]
    if node.op.name == "reshape":
        return reshaped(place, operand.shape, node.shape)
    if node.op.name == "flip":
        return _flip(place, operand.shape, *node.attrs)
    return tuple(place[dim] for dim in node.attrs[0])


def pad_source(node: Node, place: Place) -> tuple[list[Condition], Place] | None:
    """Where a padded tensor holds its operand, and from where in it; None if nowhere."""
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
    """The conditions that may fail; None if one always does."""
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
