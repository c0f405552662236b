"""The value of `grad_fn`: the call that computed a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..recording import views
from ..recording.builders import builder, camel, facts
from ..recording.histories import History

if TYPE_CHECKING:
    from .._tensor import Tensor


class GradFn:
    """A call on the way of a gradient, named as PyTorch names it."""

    def __init__(self, node: Node, view: views.View | None = None):
        self._node = node
        self._view = view

    @staticmethod
    def of(node: Node, chain: views.Chain | None = None) -> GradFn:
        """The call that computed `node`, or the last view of `chain`, in any epoch."""
        if chain is not None and not chain.view.detaches:
            return GradFn(node, chain.view)
        while node.op is ops.variable:
            target = recording.variable_target(node.attrs[0])
            if not isinstance(target, History):
                return AccumulateGrad(target)
            node = target.node
        return GradFn(node)

    def name(self) -> str:
        if self._view is not None:
            return f"{camel(self._view.name)}Backward0"
        return _name(self._node)

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The calls that computed the operands; None for an operand without gradient."""
        _, args = self._node.memo.get("call", (None, self._node.operands))
        found = []
        for a in args:
            if isinstance(a, Node):
                try:
                    found.append((GradFn.of(a) if a.requires_grad else None, 0))
                except IndexError:  # of an epoch that is over
                    found.append((None, 0))
        return tuple(found)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class AccumulateGrad(GradFn):
    """The end of a gradient's way: a leaf's `.grad`."""

    def __init__(self, variable: Tensor):
        self.variable = variable

    def name(self) -> str:
        return "AccumulateGrad"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        return ()


class GradientEdge(NamedTuple):
    """The place at which a gradient arrives: a node and the number of its result.

    ownership_token: the tensor that the edge was taken of.
    """

    node: GradFn
    output_nr: int
    ownership_token: Any = None


def _name(node: Node) -> str:
    """The name that a node's builder declares; the op's name for a node without a call."""
    build, args = node.memo.get("call", (None, ()))
    if isinstance(build, views.View):
        return f"{camel(build.name)}Backward0"
    known = facts(build)
    if known is None:
        known, args = facts(node.op), node.operands
    return f"{camel(node.op.name)}Backward0" if known is None else known.grad_fn(args)


# Nodes that autograd makes itself.
builder("copy_", gradient="CopyBackward0")(ops.detach)
builder("copy_", gradient="CopyBackward0")(ops.with_value)
