"""Writes to parts of tensors, found in a graph.

A write through views is recorded as a choice at each element of the whole tensor: the new value
where a mask holds, the old one elsewhere. The mask is True, moved to the places that the views
show, so it says which part of the tensor is written.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from .. import ops
from ..node import Node, grad_mode
from ..shape import contiguous_strides, reshape_strides
from .simplify import splat

Step = tuple[Any, tuple[Any, ...]]
"""A slice, reshape or permute with its attrs."""


class Write(NamedTuple):
    """`base` with `value` in a part of it. steps: the views that lead from `base` to the part;
    strides can express them."""

    base: Node
    value: Node
    steps: tuple[Step, ...]


def write_of(node: Node) -> Write | None:
    """What `node` writes; None if it isn't a write to a part of its last operand."""
    if node.op is not ops.where or node.operands[2].shape != node.shape:
        return None
    inside, value, base = node.operands
    strides: tuple[int, ...] | None = contiguous_strides(node.shape)
    steps: list[Step] = []
    if value.shape != node.shape or inside.shape != node.shape:
        return None
    while (whole := splat(inside)) is None:
        step = _undone(inside)
        if step is None:
            return None
        op, attrs = step
        assert strides is not None
        if op is ops.slice_op:
            strides = tuple([s * by for s, by in zip(strides, attrs[2])])
        elif op is ops.permute_op:
            strides = tuple([strides[i] for i in attrs[0]])
        else:
            strides = reshape_strides(inside.shape, strides, attrs[0])
            if strides is None:
                return None
        if value.op is inside.op and value.attrs == inside.attrs:
            value = value.operands[0]
        else:
            with grad_mode(False):
                value = op(value, *attrs)
        steps.append(step)
        inside = inside.operands[0]
        if value.shape != inside.shape:
            return None
    return Write(base, value, tuple(steps)) if whole and steps else None


def _undone(node: Node) -> Step | None:
    """The view of `node` that gives its operand back; None if there is none."""
    op, attrs = node.op, node.attrs
    if op is ops.reshape_op:
        return op, (tuple(node.operands[0].shape),)
    if op is ops.permute_op:
        inverse = sorted(range(len(attrs[0])), key=attrs[0].__getitem__)
        return op, (tuple(inverse),)
    if op is not ops.pad_op:
        return None
    part, fill = node.operands
    low, high, interior = attrs
    outside = splat(fill)
    if outside is None or outside or min((*low, *high), default=0) < 0 or 0 in part.shape:
        return None
    steps = tuple([i + 1 for i in interior])
    stops = tuple([a + (n - 1) * s + 1 for n, a, s in zip(part.shape, low, steps)])
    return ops.slice_op, (low, stops, steps)
