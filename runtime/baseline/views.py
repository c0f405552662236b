"""Nodes that are other nodes, or views of them, by what their operands are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import SIGNED, UNSIGNED
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.ops.generate import constant_value

Form = Callable[..., Any]


def same(node: Node) -> Node | None:
    """The node whose value `node` has: that which a slice takes out of a `cat`, or an integer that
    nothing is added to. None for others."""
    if node.op is ops.slice_op:
        return _taken(node)
    if node.op is ops.add and node.dtype.category in (UNSIGNED, SIGNED):
        for zero, other in (node.operands, node.operands[::-1]):
            is_zero = zero.op.kind is Kind.CONSTANT and constant_value(zero) == 0
            if is_zero and (other.shape, other.dtype) == (node.shape, node.dtype):
                return other
    return None


def is_zero(node: Node) -> bool:
    """Whether all elements of a node are a zero that is written in the program."""
    while node.op is ops.expand_op:
        (node,) = node.operands
    return node.op.kind is Kind.CONSTANT and bool(constant_value(node) == 0)


def _taken(node: Node) -> Node | None:
    (whole,), bounds = node.operands, list(zip(*node.attrs))
    if whole.op is not ops.cat_op:
        return None
    (axis,), start = whole.attrs, 0
    if any(b != (0, n, 1) for i, (b, n) in enumerate(zip(bounds, whole.shape)) if i != axis):
        return None
    for part in whole.operands:
        stop = start + part.shape[axis]
        if bounds[axis] == (start, stop, 1):
            return part
        start = stop
    return None


def strided(node: Node) -> tuple[Node, Form] | None:
    """What a gather reads whose positions follow from the place, as those of `as_strided`, and the
    form of the view that it is; None for others."""
    x, index = node.operands[:2]
    if len(node.operands) != 2 or x.rank != 1 or 0 in (*x.shape, *node.shape):
        return None
    found = _affine(index, {})
    if found is None:
        return None
    first, steps = found
    ends = [first, first]  # the least and the greatest position
    for step, size in zip(steps, node.shape):
        ends[step > 0] += step * (size - 1)
    if ends[0] < 0 or ends[1] >= x.shape[0]:
        return None
    size, shape, np_dtype = x.dtype.itemsize, tuple(node.shape), x.dtype.np
    strides = tuple([size * step for step in steps])

    def view(x: Any) -> Any:
        x = np.asarray(x, order="C")
        out = np.ndarray(shape, np_dtype, x, size * first, strides)
        out.flags.writeable = False  # an element may stand at several places
        return out

    return x, view


_Affine = tuple[int, list[int]]
"""(first, steps): the position at the place 0, and what a step along each axis adds to it."""

_DEEPEST = 24
"""Nodes in a line up to which an index is looked at."""


def _affine(node: Node, known: dict[Node, _Affine | None], depth: int = 0) -> _Affine | None:
    """An index as a sum of what its axes give; None for others. known: nodes met before."""
    if node not in known:
        known[node] = _summed(node, known, depth)
    return known[node]


def _summed(node: Node, known: dict[Node, _Affine | None], depth: int) -> _Affine | None:
    op = node.op
    if op.kind is Kind.CONSTANT:
        return int(constant_value(node)), []
    if op is ops.iota:
        return 0, [1]
    if op not in (ops.add, ops.mul, ops.expand_op, ops.reshape_op) or depth == _DEEPEST:
        return None
    parts: list[_Affine] = []
    for operand in reversed(node.operands):  # the last one of a sum is the shorter line
        found = _affine(operand, known, depth + 1)
        steps = None if found is None else _spread(found[1], operand.shape, node)
        if found is None or steps is None:
            return None
        parts.append((found[0], steps))
    if len(parts) == 1:
        return parts[0]
    (first, steps), (other, others) = parts
    if op is ops.add:
        return first + other, [a + b for a, b in zip(steps, others)]
    if any(steps) and any(others):
        return None
    return first * other, [a * other + b * first for a, b in zip(steps, others)]


def _spread(steps: list[int], shape: Sequence[int], node: Node) -> list[int] | None:
    """The steps of an operand of `shape` along the axes of `node`; None for a reshape that joins or
    cuts axes."""
    if node.op is ops.reshape_op:
        own = [(n, step) for n, step in zip(shape, steps) if n != 1]
        if [n for n, _ in own] != [n for n in node.shape if n != 1]:
            return None
        left = iter(own)
        return [next(left)[1] if n != 1 else 0 for n in node.shape]
    missing = node.rank - len(shape)
    return [0] * missing + [step if n != 1 else 0 for n, step in zip(shape, steps)]
