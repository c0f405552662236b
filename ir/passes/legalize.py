"""Decomposition: composites become primitives and markers vanish."""

from __future__ import annotations

from ..node import Node
from ..op import Kind
from ..ops.generate import constant
from ..ops.marker import MARKERS
from .autodiff import decomposed


def decompose_composites(node: Node) -> Node | None:
    """A composite is what its record says it is made of."""
    return decomposed(node) if node.op.kind is Kind.COMPOSITE else None


def drop_markers(node: Node) -> Node | None:
    """`variable`, `detach` and `with_value` are the value they mark."""
    if node.op.kind is not Kind.MARKER:
        return None
    place = MARKERS.get(node.op)
    # One that has no value stands for nothing once its users have dropped it.
    return constant(0, node.dtype) if place is None else node.operands[place]
