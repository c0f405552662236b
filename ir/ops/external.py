"""Kernels that the user wrote, as nodes. A launch changes whole tensors in memory; the value of a
node is one of these tensors after the launch."""

from __future__ import annotations

from typing import Any

from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size


def _infer(*args: Any) -> Aval:
    *operands, _, _, written, index = args
    after = written[index]
    if isinstance(after, int):
        return operands[after].shape, operands[after].dtype
    shape, dtype = after
    return Size(shape), dtype


external = Op("external", Kind.EXTERNAL, _infer, params=("launch", "tensors", "written", "index"))
"""Memory number `index`, among those that a launch writes, as the launch leaves it.

launch: the name of the launch; see codegen/lower/external.py. The first `tensors` operands are in
memory, the others are numbers that change from run to run. written: for each memory that the launch
writes, its place among the operands, or (shape, dtype) if its contents before don't matter.
The user writes the gradient.
"""


def updated(node: Node) -> Node:
    """The operand whose memory a node overwrites; the node itself if it has memory of its own."""
    if node.op is external:
        *_, written, index = node.attrs
        after = written[index]
        return node.operands[after] if isinstance(after, int) else node
    return node.operands[0] if node.op.kind is Kind.SCATTER else node


def outcomes(node: Node) -> tuple[Node, ...]:
    """The nodes of everything that the launch of `node` writes, in the order of `written`."""
    *attrs, written, _ = node.attrs
    return tuple(external(*node.operands, *attrs, written, i) for i in range(len(written)))
