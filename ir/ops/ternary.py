"""Elementwise functions of three operands."""

from __future__ import annotations

from ..dtype import bool_
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op, Part
from ..shape import broadcast


def _where_infer(condition: Node, x: Node, y: Node) -> Aval:
    if condition.dtype is not bool_:
        raise RuntimeError(
            f"where: expected a bool condition, got {condition.dtype}{at_user_line()}"
        )
    if x.dtype is not y.dtype:
        raise RuntimeError(f"where: dtypes differ: {x.dtype} and {y.dtype}{at_user_line()}")
    return broadcast(condition.shape, x.shape, y.shape), x.dtype


def _where_vjp(g: Node, out: Node, condition: Node, x: Node, y: Node) -> tuple[Part, ...]:
    from .unary import zeros_like

    zero = zeros_like(g)
    return None, lambda: where(condition, g, zero), lambda: where(condition, zero, g)


where = Op(
    "where",
    Kind.ELEMENTWISE,
    _where_infer,
    vjp=_where_vjp,
    numpy="np.where({0}, {1}, {2})",
    triton="tl.where({0}, {1}, {2})",
    onnx="Where",
    error=0,
    float8=True,
    complex=True,
    complex_half=True,
)


def flat_in(x: Node, value: Node) -> Node:
    """`value`, whose shape `x` broadcasts to and which doesn't depend on it: the gradient in `x` is
    zeros. A value without history would have none."""
    from .generate import constant

    return where(constant(False, bool_), x, value) if x.requires_grad else value
