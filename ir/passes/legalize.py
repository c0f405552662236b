"""Decomposition: composites become primitives, long sums float64, and markers vanish."""

from __future__ import annotations

from ..dtype import complex64, complex128, float32, float64
from ..node import Node
from ..op import Kind
from ..ops.generate import constant
from ..ops.marker import LEAK, MARKERS, example
from ..ops.unary import cast
from ..rewrite import on
from .autodiff import decomposed


@on(Kind.COMPOSITE)
def decompose_composites(node: Node) -> Node | None:
    """Replace a composite by its decomposition."""
    return decomposed(node)


def widen_long_sums(node: Node) -> Node | None:
    """Compute an op whose record is `wide` in float64, as PyTorch does on CPUs."""
    wide = {float32: float64, complex64: complex128}.get(node.dtype)
    if not node.op.wide or wide is None:
        return None
    return cast(node.op(*[cast(o, wide) for o in node.operands], *node.attrs), node.dtype)


@on(Kind.MARKER)
def drop_markers(node: Node) -> Node | None:
    """Replace a marker (`variable`, `detach`, `with_value`, …) by the value it marks."""
    if node.op is example:
        raise RuntimeError(LEAK)
    place = MARKERS.get(node.op)
    # Nothing reads a marker without a value once its users are gone.
    return constant(0, node.dtype) if place is None else node.operands[place]
