"""Python's operators between nodes of one dtype, or a node and a number.

VJPs and decompositions are written with them. They are installed here, so that `Node` knows no op.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..node import Node
from ..op import Op
from .binary import add, div, ge, gt, le, lt, mul, sub
from .generate import constant
from .unary import neg


def _operator(op: Op) -> Callable[[Node, Any], Node]:
    def operator(self: Node, other: Any) -> Node:
        if not isinstance(other, Node):
            other = constant(other, self.dtype)
        return op(self, other)

    return operator


def _reflected(op: Op) -> Callable[[Node, Any], Node]:
    """The operator for a number on the left."""

    def operator(self: Node, other: Any) -> Node:
        return op(constant(other, self.dtype), self)

    return operator


for _name, _op in (("add", add), ("sub", sub), ("mul", mul), ("truediv", div)):
    setattr(Node, f"__{_name}__", _operator(_op))
    setattr(Node, f"__r{_name}__", _reflected(_op))
for _name, _op in (("lt", lt), ("le", le), ("gt", gt), ("ge", ge)):
    setattr(Node, f"__{_name}__", _operator(_op))
setattr(Node, "__neg__", lambda self: neg(self))  # noqa: B010 -- mypy refuses the assignment
