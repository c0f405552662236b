"""Python's operators between nodes of one dtype; a number becomes a constant of that dtype."""

from __future__ import annotations

from collections.abc import Callable

from ..node import Node
from ..op import Op
from .binary import add, div, ge, gt, le, lt, mul, sub
from .generate import constant
from .unary import neg


def _forward(op: Op) -> Callable[..., Node]:
    def apply(a: Node, b: Node | float) -> Node:
        return op(a, b if isinstance(b, Node) else constant(b, a.dtype))

    return apply


def _reflected(op: Op) -> Callable[..., Node]:
    def apply(b: Node, a: float) -> Node:
        return op(constant(a, b.dtype), b)

    return apply


_OPERATORS: dict[str, Callable[..., Node]] = {
    "__add__": _forward(add),
    "__radd__": _reflected(add),
    "__sub__": _forward(sub),
    "__rsub__": _reflected(sub),
    "__mul__": _forward(mul),
    "__rmul__": _reflected(mul),
    "__truediv__": _forward(div),
    "__rtruediv__": _reflected(div),
    "__neg__": lambda x: neg(x),
    "__lt__": _forward(lt),
    "__le__": _forward(le),
    "__gt__": _forward(gt),
    "__ge__": _forward(ge),
}
for _name, _function in _OPERATORS.items():
    setattr(Node, _name, _function)
