"""The names of calls on the way of a gradient, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from ..functions.promotion import is_number
from ..recording import views
from ..recording.builders import Step, builder, camel, facts


def name_of_view(view: views.View) -> str:
    return f"{camel(view.name)}Backward{view.form}"


def name_of(node: Node) -> str:
    """The name that a node's builder declares; the op's name for a node without a call."""
    build, args = node.memo.get("call", (None, ()))
    if build is None and node.memo.get("written"):  # a view of the memory was written to
        return "CopySlices"
    if isinstance(build, views.View):
        return name_of_view(build)
    if isinstance(build, str):  # the class of a user-written derivative
        return f"{build}Backward"
    known = facts(build)
    if known is None:
        known, args = facts(node.op), node.operands
    return f"{camel(node.op.name)}Backward0" if known is None else known.grad_fn(args)


def is_users(node: Node) -> bool:
    """Whether a node is a result of a user-written `autograd.Function`."""
    return isinstance(node.memo.get("call", (None, ()))[0], str)


def operands_of(node: Node) -> list[Node | Step]:
    """The operands of the call that made a node, in PyTorch's order, or what it calls for them."""
    build, args = node.memo.get("call", (None, node.operands))
    known = facts(build)
    shown = args if known is None or known.steps is None else known.steps(args)
    return [each for each in shown if isinstance(each, (Node, Step))]


def _of_overwritten(args: Sequence[Node]) -> str:
    """The name by the new value: a number, or anything else."""
    new = args[1]
    while new.op is ops.expand_op:
        (new,) = new.operands
    if not is_number(new):
        return "CopyBackwards"
    zero = new.op.kind is Kind.CONSTANT and ops.constant_value(new) == 0
    return "ZeroBackward0" if zero else "FillBackward2"


# Nodes that autograd makes itself.
builder("copy_", gradient="CopyBackwards")(ops.detach)
builder("copy_", gradient="CopyBackwards")(ops.with_value)
builder("copy_", gradient=_of_overwritten)(ops.overwritten)
