"""Functions of a score that attention's kernel takes as they are: c * score + bias, or -inf."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.node import Node, reachable

from ...functions import creation
from ...recording import resolve

if TYPE_CHECKING:
    from ..._tensor import Tensor

_SCORE = 7.158278e-31
"""A number that stands for a score: none that a program would name."""


def affine(
    mod: Callable[..., Any] | None, places: Sequence[Any], sizes: tuple[int, ...], device: Any
) -> tuple[float | None, Tensor | None]:
    """(c, bias) if mod(score) is c * score + bias for a positive number c, where bias may be -inf;
    (None, None) if it isn't, or nobody can tell. A bias of None is 0."""
    if mod is None:
        return 1.0, None

    def score(value: float) -> Any:
        return creation.full((), value, device=device).expand(*sizes)

    probe, changed = resolve(score(_SCORE)), resolve(mod(score(_SCORE), *places))
    slopes: dict[Node, float | None] = {probe: 1.0}
    for node in reachable([changed]):  # operands first
        if node is not probe:
            slopes[node] = _slope(node, [slopes[o] for o in node.operands])
    slope = slopes.get(changed)
    if slope is None or not 0 < slope < math.inf:
        return None, None
    bias: Tensor = mod(score(0.0), *places)
    return slope, bias


def _slope(node: Node, slopes: Sequence[float | None]) -> float | None:
    """By how much a node grows with the score, the same for all elements; None if that isn't so.
    slopes: those of its operands."""
    if not any(slopes) and None not in slopes:
        return 0.0
    if node.op in (ops.expand_op, ops.reshape_op):
        return slopes[0] if node.shape == node.operands[0].shape else None
    if node.op is ops.where and slopes[0] == 0:
        return _common(node.operands[1:], slopes[1:])
    if None in slopes:
        return None
    a, b = (*map(float, slopes), 0.0)[:2]  # type: ignore[arg-type]
    if node.op is ops.add or node.op is ops.sub:
        return a + b if node.op is ops.add else a - b
    if node.op is ops.neg:
        return -a
    if node.op is ops.mul and not (a and b):
        factor = _number(node.operands[1 if a else 0])
        return None if factor is None else (a or b) * factor
    if node.op is ops.div and not b:
        divisor = _number(node.operands[1])
        return a / divisor if divisor else None
    return None


def _common(choices: Sequence[Node], slopes: Sequence[float | None]) -> float | None:
    """The slope of a choice: that of both, or of one where the other is -inf."""
    found = {s for x, s in zip(choices, slopes, strict=True) if _number(x) != -math.inf}
    return found.pop() if len(found) == 1 else None


def _number(node: Node) -> float | None:
    """The number that all elements of a node are, if the program wrote it."""
    while node.op in (ops.expand_op, ops.reshape_op):
        node = node.operands[0]
    return float(ops.constant_value(node)) if node.op is ops.constant_op else None
