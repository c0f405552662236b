"""Functions of a score that attention's kernel takes as they are: c * score + bias, or -inf; with a
soft cap a * tanh(c * score) + bias."""

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
) -> tuple[float, float, Tensor | None] | None:
    """(c, 0, bias) if mod(score) is c * score + bias for a positive number c, where bias may be
    -inf; (c, a, bias) if it is a * tanh(c * score / a) + bias; None if it is neither, or nobody can
    tell. A bias of None is 0."""
    if mod is None:
        return 1.0, 0.0, None

    def score(value: float) -> Any:
        return creation.full((), value, device=device).expand(sizes)

    probe, changed = resolve(score(_SCORE)), resolve(mod(score(_SCORE), *places))
    nodes = reachable([changed])  # operands first
    of_score = _multiples(nodes, probe)
    capped = (n for n in nodes if n.op is ops.tanh and of_score.get(n.operands[0], 0) > 0)
    base = next(capped, probe)
    slopes: dict[Node, float | None] = {probe: None, base: 1.0}
    for node in nodes:
        if node not in slopes:
            slopes[node] = _slope(node, [slopes[o] for o in node.operands])
    slope = slopes.get(changed)
    if slope is None or not 0 < slope < math.inf:
        return None
    bias = None if changed in _multiples(nodes, base) else mod(score(0.0), *places)
    if base is probe:
        return slope, 0.0, bias
    return slope * of_score[base.operands[0]], slope, bias


def _multiples(nodes: Sequence[Node], base: Node) -> dict[Node, float]:
    """The nodes that are `base` times a number, with these numbers."""
    found = {base: 1.0}
    for node in nodes:
        if node.op in (ops.mul, ops.div, ops.expand_op, ops.reshape_op):
            factor = _slope(node, [found.get(o, 0.0) for o in node.operands])
            found |= {node: factor} if factor else {}
    return found


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
