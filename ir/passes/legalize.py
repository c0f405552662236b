"""Decomposition: composites become primitives, in a type that will do, and markers vanish."""

from __future__ import annotations

from ..dtype import float32, float64
from ..node import Node
from ..op import Kind
from ..ops.generate import constant
from ..ops.marker import MARKERS
from ..ops.unary import cast
from .autodiff import decomposed


def decompose_composites(node: Node) -> Node | None:
    """A composite is what its record says it is made of."""
    return decomposed(node) if node.op.kind is Kind.COMPOSITE else None


def widen_long_sums(node: Node) -> Node | None:
    """An op whose record is `wide`, computed in float64, as PyTorch does on CPUs."""
    if not node.op.wide or node.dtype is not float32:
        return None
    return cast(node.op(*[cast(o, float64) for o in node.operands], *node.attrs), float32)


def drop_markers(node: Node) -> Node | None:
    """`variable`, `detach` and `with_value` are the value they mark."""
    if node.op.kind is not Kind.MARKER:
        return None
    place = MARKERS.get(node.op)
    # One that has no value stands for nothing once its users have dropped it.
    return constant(0, node.dtype) if place is None else node.operands[place]
