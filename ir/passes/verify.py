"""Checks that a graph is well formed; run between passes under TW_DEBUG."""

from __future__ import annotations

from collections.abc import Sequence

from ..node import Node, reachable


class InvalidGraph(AssertionError):
    """A pass produced a graph that breaks an invariant: a bug of the compiler, not of its user."""


def verify(roots: Sequence[Node], after: str = "recording") -> None:
    """Operands precede their users, and each op's rule gives the shape and dtype its node has."""
    for node in reachable(roots):
        for operand in node.operands:
            if operand.seq >= node.seq:
                raise InvalidGraph(f"after {after}: {operand!r} is younger than its user {node!r}")
        shape, dtype = node.op.infer(*node.operands, *node.attrs)
        if tuple(shape) != tuple(node.shape) or dtype is not node.dtype:
            raise InvalidGraph(f"after {after}: {node!r} should be {dtype.short}{list(shape)}")
        if len(node.attrs) != len(node.op.params):
            raise InvalidGraph(f"after {after}: {node!r} has attrs {node.attrs}")
