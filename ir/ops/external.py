"""Kernels that the user wrote, as nodes: a launch changes whole tensors in memory, so its value is
what one of them holds after it."""

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
"""What a launch leaves in number `index` of what it writes to.

launch: the name of what is launched; see codegen/lower/external.py. Of the operands the first
`tensors` are in memory, the others are numbers that change from run to run. written: the place
among the operands of what is written to, or (shape, dtype) of memory that may hold anything before.
The gradient is the user's to write.
"""


def updated(node: Node) -> Node:
    """The operand in whose memory a node is made; the node itself if it isn't made in place."""
    if node.op is external:
        *_, written, index = node.attrs
        after = written[index]
        return node.operands[after] if isinstance(after, int) else node
    return node.operands[0] if node.op.kind is Kind.SCATTER else node


def outcomes(node: Node) -> tuple[Node, ...]:
    """All that the launch of `node` writes, in the order of `written`."""
    *attrs, written, _ = node.attrs
    return tuple(external(*node.operands, *attrs, written, i) for i in range(len(written)))
