"""What `grad_fn` shows: the call that computed a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..recording import views
from ..recording.histories import History
from ..recording.names import _BUILDERS, name_of

if TYPE_CHECKING:
    from .._tensor import Tensor


class GradFn:
    """A call on the way of a gradient, named as PyTorch names it."""

    def __init__(self, node: Node, view: views.View | None = None):
        self._node = node
        self._view = view

    @staticmethod
    def of(node: Node, chain: views.Chain | None = None) -> GradFn:
        """The call that computed `node`, or the last view of `chain`; across the ends of epochs."""
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
            return f"{_camel(self._view.name)}Backward0"
        return f"{_stem(self._node)}Backward{_overload(self._node)}"

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The calls that computed the operands, and None for one without gradient."""
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


_NAMES = {
    "Matmul": "Mm",
    "Detach": "Copy",
    "WithValue": "Copy",
    "FunctionOutput": "Function",
    "Repeat": "Repeat",
    "CopiedValue": "ToCopy",
    "To": "ToCopy",
    "Cast": "ToCopy",
    "Identity": "Clone",
    "Norm": "LinalgVectorNorm",
    "MaxAlong": "Max",
    "MinAlong": "Min",
    "GatherDim": "Gather",
    "Put": "IndexPut",
    "SetStorage": "CopySlices",
    "ClampLow": "Clamp",
    "ClampHigh": "Clamp",
}


def _camel(name: str) -> str:
    return "".join(w[:1].upper() + w[1:] for w in name.strip("_").split("_"))


def _stem(node: Node) -> str:
    build = node.memo.get("call", (None,))[0]
    if build is None:
        name = node.op.name
    elif isinstance(build, views.View):
        name = build.name
    else:
        name = name_of(build)
        if name in ("build", "<lambda>", ""):
            name = node.op.name
    stem = _camel(name)
    if stem == "Var" and node.memo["call"][1][-1]:
        return "Std"
    if stem in ("Matmul",):
        return _product(node)
    return _NAMES.get(stem, stem)


def _product(node: Node) -> str:
    """PyTorch's name of the kernel that a matmul of these ranks calls."""
    _, args = node.memo.get("call", (None, node.operands))
    ranks = tuple(a.rank for a in args if isinstance(a, Node))
    names: dict[tuple[int, ...], str]
    names = {(1, 1): "Dot", (2, 2): "Mm", (2, 1): "Mv", (1, 2): "Squeeze", (3, 3): "Bmm"}
    return names.get(ranks, "UnsafeView")


def _overload(node: Node) -> int:
    """PyTorch numbers the forms of a function: with dims or without, tensor or number."""
    build, args = node.memo.get("call", (None, ()))
    name = getattr(build, "__name__", "").strip("_")
    if name in ("sum", "mean", "prod"):
        return int(args[1] is not None)
    if name in ("amax_all", "amin_all"):
        return 1
    if _BUILDERS.get(build) == "pow":
        number = [a.op.name in ("constant", "scalar") and not a.shape for a in args]
        return 0 if number[1] else 1
    if _BUILDERS.get(build) == "squeeze":
        return 0
    return 0
