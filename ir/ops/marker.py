"""Identities that mean something to autograd only; they vanish when a graph is compiled."""

from __future__ import annotations

from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size


def _same(x: Node, *_: object) -> Aval:
    return x.shape, x.dtype


variable = Op(
    "variable",
    Kind.MARKER,
    params=("index",),
    infer=_same,
    vjp=lambda g, out, x, i: (None,),
    collects=True,
)
"""A place where gradients are collected: the `index`-th such place of the recording."""

detach = Op("detach", Kind.MARKER, infer=_same)
"""The same value without its history."""

clone = Op("clone", Kind.MARKER, infer=_same, vjp=lambda g, out, x: (g,))
"""The same value and gradient, as a tensor of its own: a write to it doesn't change `x`."""

saved = Op("saved", Kind.MARKER, infer=_same, vjp=lambda g, out, x: (g,))
"""The same value and gradient, as an op keeps it for its derivative: no tensor has this node, so no
write changes it."""

inference = Op("inference", Kind.MARKER, infer=_same)
"""The same value, of a tensor that was made in inference mode: no derivative may read it."""

alias = Op(
    "alias", Kind.MARKER, params=("number",), infer=_same, vjp=lambda g, out, x, number: (g,)
)
"""The same value and gradient, at a node of its own: the gradient of one tensor is told apart from
those of others that have the same node."""

with_value = Op(
    "with_value",
    Kind.MARKER,
    infer=lambda history, value: (value.shape, value.dtype),
    vjp=lambda g, out, history, value: (g, None),
)
"""The value of the second operand with the history of the first (a write through `.data`)."""


def _no_gradient(g: Node, out: Node, before: Node, value: Node) -> tuple[Node, Node]:
    from .unary import zeros_like

    return zeros_like(before), g


overwritten = Op(
    "overwritten",
    Kind.MARKER,
    infer=lambda before, value: (value.shape, value.dtype),
    vjp=_no_gradient,
    aten="copy_",
)
"""The value of the second operand in the place of the first, to which zero gradient flows."""

empty = Op("empty", Kind.MARKER, infer=_same)
"""Memory for a user's kernel to write to, whose contents before don't matter."""

example = Op(
    "example",
    Kind.MARKER,
    params=("level",),
    infer=lambda x, level: (Size(x.shape[1:]), x.dtype),
    vjp=lambda g, out, x, level: (None,),
)
"""What a function under `vmap` sees of a batch: any one of the examples along its first axis. The
`level` is the number of vmaps around. `ir/passes/batching.py` takes it away again, so it is never
compiled."""

point = Op("point", Kind.MARKER, params=("index",), infer=_same, vjp=lambda g, out, x, i: (g,))
"""The same value and gradient, at the `index`-th place of the recording where a function is
differentiated."""

LEAK = (
    "vmap: a tensor of a single example was kept after the function that vmap called returned, so "
    "it has no value. Return it from the function instead"
)

MARKERS = {
    variable: 0, detach: 0, clone: 0, saved: 0, alias: 0, with_value: 1, overwritten: 1, empty: 0,
    point: 0, inference: 0,
}  # fmt: skip
"""The number of the operand that holds a marker's value."""


def value_node(node: Node) -> Node:
    """The node of the value beneath a marker."""
    while node.op in MARKERS:
        node = node.operands[MARKERS[node.op]]
    return node
