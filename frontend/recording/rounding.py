"""Rounding of half types: a call rounds once, as in PyTorch, however many ops it consists of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.dtype import HALVES, complex32
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.ops.composite import as_dtype, widen
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.rewrite import above

_ROUNDED = frozenset((*HALVES, complex32))

_FREE = (
    Kind.ELEMENTWISE, Kind.REDUCE, Kind.MOVEMENT, Kind.GATHER, Kind.CHECK, Kind.CONSTANT,
    Kind.GENERATE,
)  # fmt: skip
"""Kinds of ops that cost no more in float32. Products are faster on halves."""


def rounded_once(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Build `build(*args)`. If it would round to a half type more than once, build it in float32
    and round at the end."""
    result = build(*args)
    nodes = [a for a in args if a.__class__ is Node]
    if _ROUNDED.isdisjoint([n.dtype for n in nodes]):
        return result
    results: tuple[Node, ...] = result if type(result) is tuple else (result,)
    steps = above(results, {*nodes})
    if not _rounds_on_the_way(steps) or not all(map(_may_widen, steps)):
        return result
    wide = build(*map(widen, args))
    if type(result) is tuple:
        return tuple(as_dtype(w, r.dtype) for w, r in zip(wide, result, strict=True))
    return as_dtype(wide, result.dtype)


def _rounds_on_the_way(steps: Sequence[Node]) -> bool:
    """Whether one of `steps` rounds a value that depends on an already rounded one."""
    rounded: set[Node] = set()
    for node in steps:
        again = any(o in rounded for o in node.operands)
        rounds = _rounds(node)
        if again and rounds:
            return True
        if again or rounds:
            rounded.add(node)
    return False


def _rounds(node: Node) -> bool:
    """Whether `node` rounds to a half type. Conversions of integers to halves don't count: PyTorch
    makes them before it computes anything."""
    if node.dtype not in _ROUNDED:
        return False
    if node.op.kind is Kind.ELEMENTWISE:
        return node.op.error > 0 and node.operands[0].dtype.is_differentiable
    return node.op.kind is Kind.COMPOSITE or node.op.name in ("sum", "prod")


def _may_widen(node: Node) -> bool:
    if node.op.kind is not Kind.COMPOSITE:
        return node.op.kind in _FREE
    return all(map(_may_widen, above([decomposed(node)], {o: o for o in node.operands})))
