"""Checks: nodes that raise an error if an op doesn't allow a value.

A check is made wherever its op would have run in PyTorch, even if nothing reads the op's value:
`unmet` finds the checks that no other computation makes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from ..dtype import BOOL, int64
from ..failure import FAILURES
from ..node import Node, reachable
from ..numeric.positions import are_inside
from ..op import Aval, Kind, Op
from .binary import add, bitwise_and, maximum, minimum, mul, remainder, sub
from .generate import constant, constant_value, iota
from .marker import MARKERS, empty
from .scan import argsort_op
from .ternary import where
from .unary import cast, full_like


def _infer(index: Node, size: int, axis: int, failure: str) -> Aval:
    if index.dtype is not int64:
        raise TypeError(f"check: expected int64, got {index.dtype}")
    return index.shape, int64


def _numpy(index: Any, size: int, axis: int, failure: str) -> Any:
    if not are_inside(index, size):
        bad = index[(index < 0) | (index >= size)]
        raise FAILURES[failure].at(int(bad.flat[0]), axis, size, "evaluated")
    return index


check = Op("check", Kind.CHECK, _infer, params=("size", "axis", "failure"), numpy=_numpy)
"""check(index, size, axis, failure): `index` itself. If an element is not in 0 <= index < size, the
run raises the error of `failure`."""


def checked(index: Node, size: int, axis: int, failure: str) -> Node:
    """`index`, positions in a dimension of `size`, checked unless its bounds prove them right."""
    if FAILURES[failure].wraps:
        low, _ = bounds(index)
        if low < 0:
            index = where(index < 0, index + size, index)
    low, high = bounds(index)
    if 0 in index.shape or (low >= 0 and high < size):
        return index
    return check(index, size, axis, failure)


def within_unit(x: Node, failure: str) -> Node:
    """A check that each element is a probability: in [0, 1], and no NaN."""
    return require(bitwise_and(x >= 0, x <= 1), failure)


def require(holds: Node, failure: str) -> Node:
    """A check that each element of `holds` is true."""
    zero = constant(0, int64)
    return check(where(holds, zero, constant(1, int64)), 1, 0, failure)


def bounds(node: Node) -> tuple[float, float]:
    """The least and the largest integer that an element of `node` may be, as far as the graph
    tells."""
    stack = [node]
    while stack:
        each = stack[-1]
        below = () if "bounds" in each.memo else _bounded_by(each)
        unknown = [o for o in below if "bounds" not in o.memo]
        stack.extend(unknown)
        if not unknown:
            stack.pop()
            if "bounds" not in each.memo:
                each.memo["bounds"] = _bounds(each)
    found: tuple[float, float] = node.memo["bounds"]
    return found


def _bounded_by(node: Node) -> Sequence[Node]:
    """The operands whose bounds may determine those of `node`. `bounds` visits them first, so a
    long history needs no deep stack."""
    if node.dtype.category == BOOL or node.op.kind not in _FOLLOWED:
        return ()
    return [o for o in node.operands if o.dtype.category <= int64.category]


_UNKNOWN = -math.inf, math.inf
_FOLLOWED = (Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.MARKER)


def _bounds(node: Node) -> tuple[float, float]:
    op, operands = node.op, node.operands
    if node.dtype.category == BOOL:
        return 0, 1
    if op is iota:
        return 0, node.shape[0] - 1
    if op.kind is Kind.CONSTANT and node.dtype is int64:
        value = int(constant_value(node))
        return value, value
    if op.fold is not None and op.fold.picks:
        axes = node.attrs[0]
        return 0, math.prod(operands[0].shape[a] for a in axes) - 1
    if op is argsort_op:
        return 0, operands[0].shape[node.attrs[0]] - 1
    if op is check:
        return 0, node.attrs[0] - 1
    if op is cast and operands[0].dtype.category <= int64.category:
        low, high = bounds(operands[0])
        held = np.iinfo(node.dtype.np)  # values outside wrap around
        return (low, high) if held.min <= low and high <= held.max else _UNKNOWN
    if op.kind is Kind.MOVEMENT:
        return _union(map(bounds, operands))
    if op.kind is Kind.MARKER and op is not empty:
        return bounds(operands[MARKERS.get(op, 0)])
    if op is where:
        return _union(map(bounds, operands[1:]))
    if op is minimum or op is maximum:
        (a, b), (c, d) = map(bounds, operands)
        choose = min if op is minimum else max
        return choose(a, c), choose(b, d)
    if op is remainder and bounds(operands[1])[0] > 0:
        return 0, bounds(operands[1])[1] - 1
    if op in (add, sub, mul) and node.dtype is int64:
        return _arithmetic(op, bounds(operands[0]), bounds(operands[1]))
    return _UNKNOWN


def _arithmetic(op: Op, x: tuple[float, float], y: tuple[float, float]) -> tuple[float, float]:
    if math.inf in (*map(abs, x), *map(abs, y)):
        return _UNKNOWN
    (a, b), (c, d) = x, y
    if op is mul:
        ends = [p * q for p in x for q in y]
        low, high = min(ends), max(ends)
    else:
        low, high = (a + c, b + d) if op is add else (a - d, b - c)
    return (low, high) if low >= -(1 << 63) and high < 1 << 63 else _UNKNOWN


def _union(all_bounds: Iterable[tuple[float, float]]) -> tuple[float, float]:
    lows, highs = zip(*all_bounds, strict=True)
    return min(lows), max(highs)


# ---- checks that nothing else makes ----------------------------------------------------------


def unmet(roots: Sequence[Node], fallible: Sequence[Node]) -> list[Node]:
    """The checks below `fallible` that computing `roots` doesn't make for all their elements. Both
    arguments are lowered to primitives."""
    wanted = [n for n in reachable(fallible) if n.op is check and not _holds(n)]
    if not wanted:
        return []
    whole = _computed_whole(roots)
    return [n for n in wanted if n not in whole]


def _holds(node: Node) -> bool:
    """Whether the bounds of its operand show that a check holds in every run."""
    low, high = bounds(node.operands[0])
    return low >= 0 and high < node.attrs[0]


def _computed_whole(roots: Sequence[Node]) -> set[Node]:
    """The nodes whose elements are surely all evaluated when `roots` are computed."""
    whole: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in whole and 0 not in node.shape:
            whole.add(node)
            stack += _read_whole(node)
    return whole


_READING_ALL = (
    Kind.ELEMENTWISE, Kind.REDUCE, Kind.SCAN, Kind.CHECK, Kind.TRANSFER, Kind.HOST,
)  # fmt: skip


def _read_whole(node: Node) -> Sequence[Node]:
    """The operands whose every element a node reads."""
    op, operands = node.op, node.operands
    if op.kind in _READING_ALL:
        return operands
    if op.whole:
        return operands
    if op.kind is Kind.CONTRACTION and not op.convolution:
        return operands
    if op.kind is Kind.SCATTER:
        return operands
    if op.kind is Kind.GATHER and _varies(operands[0]):
        return operands[1:]
    return ()


def _varies(node: Node) -> bool:
    """Whether an element of `node` depends on its position. A gather from equal elements doesn't
    evaluate its index."""
    seen: set[Node] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node.op.bijective:
            stack += node.operands
        elif node.op.kind is Kind.ELEMENTWISE:
            stack += [o for o in node.operands if o.shape == node.shape]
        elif node.op.kind not in (Kind.CONSTANT, Kind.MOVEMENT) and node.shape:
            return True
    return False


def made_alone(node: Node) -> Node:
    """A node whose computation includes a check that nothing else makes."""
    return node < full_like(node, 0)
