"""The names of calls on the way of a gradient, as PyTorch has them."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.node import Node

from ..recording import views
from ..recording.builders import builder, camel, facts


def name_of_view(view: views.View) -> str:
    return f"{camel(view.name)}Backward0"


def name_of(node: Node) -> str:
    """The name that a node's builder declares; the op's name for a node without a call."""
    build, args = node.memo.get("call", (None, ()))
    if isinstance(build, views.View):
        return name_of_view(build)
    if isinstance(build, str):  # the class of a user-written derivative
        return f"{build}Backward"
    known = facts(build)
    if known is None:
        known, args = facts(node.op), node.operands
    return f"{camel(node.op.name)}Backward0" if known is None else known.grad_fn(args)


# Nodes that autograd makes itself.
builder("copy_", gradient="CopyBackward0")(ops.detach)
builder("copy_", gradient="CopyBackward0")(ops.with_value)
