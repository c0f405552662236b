"""The names of calls on the way of a gradient, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.shape import normalize_axis

from ..functions.joining import _cat, _stack
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


Call = tuple[Any, Sequence[Any]]
"""A builder, or a view, and its arguments."""


def call_of(node: Node, chain: views.Chain | None = None) -> Call:
    """The call that made a node. Equal views share a node: `chain` says which of them is meant."""
    call: Call = node.memo.get("call", (None, ()))
    if chain is None or not isinstance(call[0], views.View):
        return call
    return chain.view, (call[1][0], *chain.attrs)


def siblings_of(node: Node, call: Call) -> Any:
    """What the results of one call share, where it has several; None for a call with one."""
    build, args = call
    if isinstance(build, views.View) and build.multiple:
        return build, args[0], args[4:]
    return (build, id(args)) if node.memo.get("among", 1) > 1 else None


def number_of(node: Node, call: Call) -> int:
    """Which result of its call a node is."""
    build, args = call
    if isinstance(build, views.View) and build.multiple:
        return build.number(*args[1:])
    number: int = node.memo.get("number", 0)
    return number


def operands_of(node: Node) -> list[Node | Step]:
    """The operands of the call that made a node, in PyTorch's order, or what it calls for them."""
    build, args = node.memo.get("call", (None, node.operands))
    known = facts(build)
    shown = args if known is None or known.steps is None else known.steps(args)
    return [each for each in shown if isinstance(each, (Node, Step))]


def saved_by(call: Call) -> dict[str, Any]:
    """What PyTorch's node of a view or of a join says of the call: sizes and dimensions."""
    build, args = call
    if build in (_cat, _stack):
        *_, last, dim = args
        return {"dim": normalize_axis(dim, last.rank + (build is _stack))}
    if not isinstance(build, views.View):
        return {}
    base, *attrs = args
    sizes = {"self_sym_sizes": tuple(base.shape)}
    if build in (views.SPLIT, views.SPLIT_WITH_SIZES):
        axis, parts = attrs[4]
        size = {"split_size": parts[0]} if build is views.SPLIT else {"split_sizes": parts}
        return {"dim": axis, **size, **sizes}
    if build in (views.UNBIND, views.SELECT, views.SLICE):
        return _saved_by_slice(build, base, *attrs)
    if build is views.PERMUTE:
        return {"dims": attrs[0]}
    if build is views.TRANSPOSE:
        moved = [i for i, at in enumerate(attrs[0]) if at != i]
        return {"dim0": moved[0], "dim1": moved[1]} if moved else {}
    if build in (views.UNSQUEEZE, views.SQUEEZE_ONE):
        (dim,) = attrs[1] or (None,)
        return {"dim": dim, **(sizes if build is views.SQUEEZE_ONE else {})}
    return sizes if build in _SIZED else {}


_SELF = (
    "Abs", "Acos", "Asin", "Atan", "Clamp", "Cos", "Cosh", "Erf", "Gelu", "LeakyRelu", "Log",
    "Log10", "Log1P", "Log2", "Silu", "Sin", "Sinh", "Softplus", "Cumprod", "Prod", "Var",
)  # fmt: skip
_RESULT = (
    "Exp", "Exp2", "Expm1", "LogSoftmax", "Prod", "Reciprocal", "Relu", "Rsqrt", "Sigmoid",
    "Softmax", "Sqrt", "Std", "Tan", "Tanh",
)  # fmt: skip
_KEPT = {
    **dict.fromkeys(_SELF, ("self",)),
    **dict.fromkeys(("Mul", "Div", "Atan2", "Maximum", "Minimum"), ("self", "other")),
    **dict.fromkeys(("Mm", "Bmm"), ("self", "mat2")),
    "Pow": ("self", "exponent"), "Mv": ("self", "vec"), "Dot": ("self", "tensor"),
    "Addmm": ("", "mat1", "mat2"),
}  # fmt: skip
"""The operands whose values PyTorch's nodes keep for the derivative, by the names of the nodes."""
_PRODUCTS = ("Mul", "Div", "Mm", "Bmm", "Mv", "Dot")
"""Nodes that keep an operand only if the other one has a gradient; of a quotient, the first one."""


def kept_by(node: Node, name: str, args: Sequence[Any]) -> dict[str, Any]:
    """What PyTorch's node of this name keeps of its call: nodes and numbers; None for an operand
    that no derivative reads. node: the result."""
    kind = name.partition("Backward")[0]
    found = dict(zip(_KEPT.get(kind, ()), args))
    found.pop("", None)
    if kind in _PRODUCTS and len(found) == 2:
        (first, a), (second, b) = found.items()
        found = {
            first: a if getattr(b, "requires_grad", False) else None,
            second: b if kind == "Div" or getattr(a, "requires_grad", False) else None,
        }
    if kind in _RESULT or name in ("PowBackward1", "PowBackward2"):
        found["result"] = node
    return found


_SIZED = (views.VIEW, views.RESHAPE, views.EXPAND, views.SQUEEZE, views.ALIAS, views.AS_STRIDED)


def _saved_by_slice(
    build: views.View, base: Node, starts: Any, stops: Any, steps: Any, kept: Any = None
) -> dict[str, Any]:
    """The facts of a slice or a row along one dimension; none where there are several."""
    whole = zip(starts, stops, steps, base.shape)
    cut = [i for i, (a, b, s, n) in enumerate(whole) if (a, b, s) != (0, n, 1)]
    dropped = [] if kept is None else [i for i in range(base.rank) if i not in kept]
    if build is views.SLICE:
        if len(cut) != 1 or dropped:
            return {}
        (dim,) = cut
        facts = {"start": starts[dim], "end": stops[dim], "step": steps[dim]}
    elif len(dropped) != 1 or not {*cut} <= {*dropped}:
        return {}
    else:
        (dim,) = dropped
        facts = {"index": starts[dim]}
    if build is views.UNBIND:
        return {"dim": dim}
    return {"dim": dim, **facts, "self_sym_sizes": tuple(base.shape)}


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
