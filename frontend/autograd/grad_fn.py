"""The value of `grad_fn`: the call that computed a tensor."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..recording import epoch, views
from ..recording.builders import Step
from ..recording.histories import Ends, History
from ..recording.parts import differentiable
from .calls import (
    Call,
    call_of,
    is_users,
    kept_by,
    name_of,
    name_of_view,
    number_of,
    operands_of,
    saved_by,
    siblings_of,
)
from .hook_calls import ACCUMULATING
from .hooks import Handles, NodeHooks, RemovableHandle, add_hook, register, register_post_accumulate
from .values import freed

if TYPE_CHECKING:
    from .._tensor import Tensor


_WITHOUT_FORMULA = {"AccumulateGrad", "CopyBackwards", "CopySlices"}
"""Classes that PyTorch doesn't generate from formulas of derivatives. Their names have a prefix."""


_SAVED = "_saved_"
"""What precedes the names of the facts that PyTorch's nodes keep of their calls."""


_OF_CONTEXTS = ("saved_tensors", "needs_input_grad")
"""What a call of an `autograd.Function` has of its context, besides what `forward` has left."""


class GradFn:
    """A call on the way of a gradient. Its class has PyTorch's name, such as `MulBackward0`.

    metadata: a dictionary for the user's own data. It lasts as long as the graph.
    """

    where = "builtins"  # the module of the classes of these calls

    metadata: dict[Any, Any]

    def __init__(self, node: Node, call: Call, ends: Ends):
        self._node, self._call, self._ends = node, call, ends
        self._hooks = NodeHooks()

    @staticmethod
    def of(node: Node, chain: views.Chain | None = None, ends: Ends | None = None) -> GradFn:
        """The call that computed `node`, or the last view of `chain`, in any epoch.

        ends: those of the node's epoch; None for the present one.
        """
        return GradFn.edge(node, chain, ends)[0]

    @staticmethod
    def edge(
        node: Node, chain: views.Chain | None = None, ends: Ends | None = None
    ) -> tuple[GradFn, int]:
        """`of`, and which of its results the node is."""
        if ends is None:
            ends = recording.clock.ends
        if chain is not None and not chain.view.detaches:
            return _known(node, ends, chain)
        while node.op in (ops.variable, ops.with_value):
            if node.op is ops.with_value:  # another value, with the same history
                if not node.operands[0].requires_grad:
                    break
                node = node.operands[0]
                continue
            if ends is recording.clock.ends:
                target = recording.variable_target(node.attrs[0])
            else:
                target = ends.targets[node]
            if not isinstance(target, History):
                return AccumulateGrad.at(target), 0
            node, ends = target.node, target.ends()
        return _known(node, ends)

    def name(self) -> str:
        name = type(self).__name__
        return f"torch::autograd::{name}" if name in _WITHOUT_FORMULA else name

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        """The calls that computed the operands; None for an operand without gradient."""
        return self._beneath(operands_of(self._node))

    def _beneath(self, operands: Sequence[Node | Step]) -> tuple[tuple[GradFn | None, int], ...]:
        found: list[tuple[GradFn | None, int]] = []
        for i, each in enumerate(operands):
            try:
                if not each.requires_grad:
                    found.append((None, 0))
                elif isinstance(each, Step):
                    found.append((InnerCall.at(self, i, each), 0))
                else:
                    found.append(GradFn.edge(each, None, self._ends))
            except KeyError:  # a backward pass has freed its graph
                found.append((None, 0))
        return tuple(found)

    @property
    def requires_grad(self) -> bool:
        return True

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call fn(grad_outputs) before the gradients of the operands are computed. A tuple that it
        returns takes the place of `grad_outputs`, which are the gradients of the results."""
        return self._hooked(fn, self._hooks.before)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call fn(grad_inputs, grad_outputs) when the gradients of the operands are known. A tuple
        that it returns takes the place of `grad_inputs`; these are in the order of
        `next_functions`, with None for an operand without gradient."""
        return self._hooked(fn, self._hooks.after)

    def _hooked(self, fn: Callable[..., Any], hooks: dict[int, Any]) -> RemovableHandle:
        if "call" not in self._node.memo or siblings_of(self._node, self._call) is not None:
            raise NotImplementedError(
                f"{self.name()}: hooks on nodes are for calls with one result. Register one on the "
                f"tensor: tensor.register_hook(hook){at_user_line()}"
            )
        self._keep()
        return add_hook(fn, hooks)

    def _keep(self) -> None:
        """Make this object last as long as its graph, and passes look at its hooks."""
        is_present = self._ends is recording.clock.ends
        watched: dict[Node, list[Any]] = recording.hooked if is_present else self._ends.hooks
        epoch.watch(watched, self._node, self._hooks)
        self._hooks.owner = self

    def __getattr__(self, name: str) -> Any:
        if name == "metadata":
            self._keep()
            self.metadata = {}
            return self.metadata
        if name.startswith(_SAVED):
            saved = self._saved()
            if name.removeprefix(_SAVED) in saved:
                found = saved[name.removeprefix(_SAVED)]
                return self._value(found) if isinstance(found, Node) else found
        raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")

    def _saved(self) -> dict[str, Any]:
        kept = kept_by(self._node, type(self).__name__, self._call[1])
        return {**saved_by(self._call), **kept}

    def _value(self, node: Node) -> Any:
        """The value of a node that the derivative reads: the leaf that it is of, or a tensor."""
        is_present = self._ends is recording.clock.ends
        if is_present and any(self._node in differentiable(root) for root, _ in epoch.freed):
            raise freed()
        if node.op is ops.variable:
            target = (
                recording.variable_target(node.attrs[0])
                if is_present
                else self._ends.targets.get(node)
            )
            if target is not None and not isinstance(target, History):
                return target
        if is_present or node.op is ops.constant_op:
            return recording.wrap(node)
        held = None if self._ends.held is None else self._ends.held(node)
        if held is not None:
            return recording.wrap(recording.resolve(held.tensor))
        build, args = call_of(node)
        if not isinstance(build, views.View):
            raise freed()
        base = recording.resolve(self._value(args[0]))
        with recording.grad_mode(False):
            return recording.wrap(build.node(base, *args[1:]))

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *[_SAVED + name for name in self._saved()]})

    def __repr__(self) -> str:
        return f"<{type(self).__name__} object at {id(self):#x}>"


class UsersCall(GradFn):
    """A call of an `autograd.Function`. It has what its context has, as in PyTorch, where it is the
    context."""

    where = "torch.autograd.function"

    def __getattr__(self, name: str) -> Any:
        kept = self._node.memo.get("context")
        if kept is None:  # a node that stands for a result, as where values are packed
            return super().__getattr__(name)
        context = kept()
        if name == "saved_tensors" and context is None:
            raise freed()
        if context is not None and (name in _OF_CONTEXTS or name in context.left()):
            return getattr(context, name)
        return super().__getattr__(name)

    def __repr__(self) -> str:
        return f"<{self.where}.{type(self).__name__} object at {id(self):#x}>"


class InnerCall(GradFn):
    """A call of PyTorch's that is a part of one here, such as the transposition in a linear layer.
    It has neighbours, and no hooks."""

    def __init__(self, outer: GradFn, place: tuple[int, ...], step: Step):
        super().__init__(outer._node, outer._call, outer._ends)
        self._outer, self._place, self._step = outer, place, step
        self.metadata = {}

    @staticmethod
    def at(outer: GradFn, number: int, step: Step) -> GradFn:
        """The one object of a step of `outer`, as long as anybody has it."""
        place = (*getattr(outer, "_place", ()), number)
        key = outer._node, place, outer._ends.number
        found = _calls.get(key)
        if found is None:
            found = _calls[key] = _class(step.name, InnerCall)(outer, place, step)
        return found

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        return self._beneath(self._step.operands)

    def _saved(self) -> dict[str, Any]:
        return {}

    def _hooked(self, fn: Callable[..., Any], hooks: dict[int, Any]) -> RemovableHandle:
        raise NotImplementedError(
            f"{self.name()}: this call is a part of {self._outer.name()}, which has the hooks"
            f"{at_user_line()}"
        )


class AccumulateGrad(GradFn):
    """The end of a gradient's way: a leaf's `.grad`."""

    def __init__(self, variable: Tensor):
        self.variable = variable
        self.metadata = {}

    @staticmethod
    def at(variable: Tensor) -> AccumulateGrad:
        """The one object of a leaf, as long as anybody has it."""
        found = _ends.get(id(variable))
        if found is None or found.variable is not variable:
            found = _ends[id(variable)] = AccumulateGrad(variable)
        return found

    @property
    def next_functions(self) -> tuple[tuple[GradFn | None, int], ...]:
        return ()

    def _saved(self) -> dict[str, Any]:
        return {}

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call fn((gradient,)) before the gradient is added to the leaf's."""

        def see(grad: Any) -> Any:
            replaced = fn((grad,))
            return replaced[0] if isinstance(replaced, tuple) else replaced

        ACCUMULATING.add(see)
        return register(self.variable, see)

    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Call fn((), (gradient,)) after the gradient was added to the leaf's."""
        latest: list[Any] = []

        def see(grad: Any) -> None:
            latest[:] = [grad]

        def end(variable: Any) -> None:
            fn((), tuple(latest))

        t = self.variable
        ACCUMULATING.add(see)
        return Handles((register(t, see), register_post_accumulate(t, end)))


_ends: weakref.WeakValueDictionary[int, AccumulateGrad] = weakref.WeakValueDictionary()
_calls: weakref.WeakValueDictionary[Any, GradFn] = weakref.WeakValueDictionary()
_classes: dict[tuple[str, type[GradFn]], type[Any]] = {}


def _class(name: str, base: type[GradFn]) -> type[Any]:
    """The class of calls with this name."""
    kind = _classes.get((name, base))
    if kind is None:
        kind = _classes[name, base] = type(name, (base,), {"__module__": base.where})
    return kind


def _key_of_view(call: Call, ends: Ends) -> Any:
    """What tells a view from others, in whatever graph it is met: each call that reads a view may
    have a node of its own for it. None for what is no view."""
    build, args = call
    if not isinstance(build, views.View):
        return None
    try:
        source = GradFn.edge(args[0], None, ends)
    except KeyError:  # a backward pass has freed its graph
        return None
    return build, source, tuple(args[4:] if build.multiple else args[1:])


def _known(node: Node, ends: Ends, chain: views.Chain | None = None) -> tuple[GradFn, int]:
    """The one object of a call in its epoch, as long as anybody has it, and the node's number."""
    call = call_of(node, chain)
    own = node.memo.get("call", (None,))[0]
    view = None if chain is None or chain.view is own else chain.view
    key = _key_of_view(call, ends) or (siblings_of(node, call) or (node, view), ends.number)
    found = _calls.get(key)
    if found is None:
        ends.is_asked = True
        name = name_of(node) if view is None else name_of_view(view)
        base = UsersCall if view is None and is_users(node) else GradFn
        found = _calls[key] = _class(name, base)(node, call, ends)
    return found, number_of(node, call)


class GradientEdge(NamedTuple):
    """The place at which a gradient arrives: a node and the number of its result.

    ownership_token: the tensor that the edge was taken of.
    """

    node: GradFn
    output_nr: int
    ownership_token: Any = None
