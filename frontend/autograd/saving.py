"""Hooks on what calls save for their derivatives.

A recorded call saves nothing: the gradient graph reads forward values where it needs them. Inside
of a block of hooks each call is looked at alone. What its own gradient graph reads is packed at
once, and the call becomes one with a derivative in Python (`function_call`): it unpacks the values
when the backward pass arrives, and puts them into that gradient graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.passes.autodiff import pullback
from tilewright.ir.rewrite import substitute

from .. import recording
from ..recording import Handle, epoch, resolve
from ..recording.derivations import is_fixed, placeholder
from . import rows
from .function import function_call, function_output

Pack = Callable[[Any], Any]


class Hooks:
    """A pair of hooks. `pack(tensor)` gives what is kept, `unpack` of that gives the tensor.

    outer: what the block of these hooks is in.
    """

    def __init__(self, pack: Pack, unpack: Pack, outer: epoch.Saving | None = None):
        self._pack, self._unpack, self.outer = pack, unpack, outer

    def pack(self, t: Any) -> Any:
        version = recording.version(t)
        with recording.grad_mode(False):
            kept = self._pack(t)
        if recording.version(t) != version:
            raise RuntimeError(
                "A saved tensor pack hook is modifying its input in place. Tensors provided as "
                f"input to pack hook cannot be modified by in-place operations: clone it first"
                f"{at_user_line()}"
            )
        return kept

    def unpack(self, kept: Any) -> Any:
        with recording.grad_mode(False):
            t = self._unpack(kept)
        if not isinstance(t, Handle):
            raise TypeError(
                "Output of saved tensor unpack_hook expected to be a Tensor but got result of type "
                f"{type(t).__name__}{at_user_line()}"
            )
        return t

    def __call__(self, result: Any, nodes: Sequence[Any], args: Sequence[Any]) -> Any:
        """See `recording.epoch.Saving`."""
        outs = result if type(result) is tuple else (result,)
        if not any(o.requires_grad for o in outs):
            return result
        call = Call.of(outs, nodes)
        if not call.reads:
            return result
        tensors = {n: a for n, a in zip(nodes, args, strict=True) if isinstance(a, Handle)}
        tensors = {n: a for n, a in tensors.items() if resolve(a) is n}
        # From here on tensors stand for nodes: a hook may end the epoch.
        others = [n for n in dict.fromkeys((*outs, *call.inputs, *call.reads)) if n not in tensors]
        tensors.update(zip(others, recording.wrap_all(others), strict=True))
        kept = [self._keep(n, tensors[n]) for n in call.reads]
        for t in (tensors[o] for o in outs):
            if not any(t is k for k in kept):  # its own history would keep what was packed alive
                (t._storage or t)._history = None
        with recording.hold():
            place = len(recording.contexts)
            recording.contexts.append((_Backward(call, self, kept), {}))
            token = function_call(*[resolve(tensors[n]) for n in call.inputs], place)
            own = []
            for i, o in enumerate(outs):
                value = resolve(tensors[o])
                if o.requires_grad:
                    value = function_output(token, ops.detach(value), i)
                    value.memo["call"] = o.memo.get("call", (None, ()))
                    value.memo["among"], value.memo["number"] = len(outs), i
                own.append(value)
        return tuple(own) if type(result) is tuple else own[0]

    def _keep(self, node: Node, t: Any) -> Any:
        if node.op is ops.scalar:
            return epoch.scalars[node.attrs[0]]
        return self.pack(t)


@contextmanager
def without_hooks() -> Iterator[None]:
    """A block whose calls save their values as they are."""
    before = recording.clock.saving
    if before is None:
        yield
        return
    recording.set_saving(None)
    try:
        yield
    finally:
        recording.set_saving(before)


class Call:
    """The derivative of one call.

    inputs: its operands that require a gradient. reads: the nodes that its gradient graph reads,
    from its operands to its results `outs`.
    """

    def __init__(self, outs: tuple[Node, ...], nodes: Sequence[Any]):
        given = {n for n in nodes if isinstance(n, Node)}
        self.outs = outs
        self.inputs = tuple(
            dict.fromkeys(n for n in nodes if isinstance(n, Node) and n.requires_grad)
        )
        self.inside = between(outs, given)
        self._grads: dict[tuple[int, ...], dict[Node, Node]] = {}
        try:
            grads = self.gradients(tuple(i for i, o in enumerate(outs) if o.requires_grad))
        except NotImplementedError:  # the backward pass will raise it
            grads = {}
        self.reads = tuple(n for n in _read(grads.values(), self.inside) if not is_fixed(n))

    @staticmethod
    def of(outs: tuple[Node, ...], nodes: Sequence[Any]) -> Call:
        key = ("saving", outs)
        found: Call | None = outs[0].memo.get(key)
        if found is None:
            found = outs[0].memo[key] = Call(outs, nodes)
        return found

    def gradients(self, reached: tuple[int, ...]) -> dict[Node, Node]:
        """The gradients of the inputs, from placeholders of the results at the places `reached`."""
        found = self._grads.get(reached)
        if found is None:
            seeds = {self.outs[i]: placeholder(self.outs[i], i) for i in reached}
            grads = pullback(seeds, self.inputs, stops=self.inputs)
            # In the order of the operands, as PyTorch packs what their gradients read.
            found = self._grads[reached] = {n: grads[n] for n in self.inputs if n in grads}
        return found


def between(outs: Sequence[Node], given: set[Node]) -> set[Node]:
    """The nodes from `given` to `outs`, both included."""
    found = set(given)
    stack = list(outs)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.operands)
    return found


def _read(grads: Any, inside: set[Node]) -> list[Node]:
    """The nodes of `inside` that the gradients read, in the order in which they are met."""
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(grads)[::-1]
    while stack:
        node = stack.pop()
        if node in inside:
            found[node] = None
        elif node not in seen:
            seen.add(node)
            stack.extend(node.operands[::-1])
    return list(found)


class _Backward:
    """The derivative of a call whose saved values are packed. See `function._call_vjp`."""

    saves = True

    def __init__(self, call: Call, hooks: Hooks, kept: list[Any]):
        self.call, self.hooks, self.kept = call, hooks, kept

    def __call__(self, cotangents: dict[int, Node], token: Node) -> list[Node | None]:
        call = self.call
        grads = call.gradients(tuple(sorted(cotangents)))
        read = set(_read(grads.values(), call.inside))
        values = {n: self._unpacked(n, k) for n, k in zip(call.reads, self.kept) if n in read}
        if recording.is_grad_enabled():
            values = self._connected(values, token)
        seeds = {placeholder(call.outs[i], i): g for i, g in cotangents.items()}
        wanted = [n for n in call.inputs if n in grads]
        found = dict(
            zip(wanted, substitute([grads[n] for n in wanted], values | seeds), strict=True)
        )
        return [found.get(n) for n in call.inputs]

    def _unpacked(self, node: Node, kept: Any) -> Node:
        if node.op is ops.scalar:
            return recording.scalar(kept, node.dtype, node.device)
        value = rows.as_node(self.hooks.unpack(kept))
        if value.shape != node.shape or (value.device or "cpu") != (node.device or "cpu"):
            raise RuntimeError(
                "saved_tensors_hooks: unpack_hook gave a tensor of shape "
                f"{tuple(value.shape)} on {value.device or 'cpu'}, where a call has saved one of "
                f"shape {tuple(node.shape)} on {node.device or 'cpu'}{at_user_line()}"
            )
        return value if value.dtype is node.dtype else ops.cast(value, node.dtype)

    def _connected(self, values: dict[Node, Node], token: Node) -> dict[Node, Node]:
        """Unpacked values with the histories of what they stand for, to differentiate again."""
        call = self.call
        given = dict(zip(call.inputs, token.operands, strict=True))
        found: dict[Node, Node] = {}
        for node, value in values.items():
            if node in given:
                found[node] = ops.with_value(given[node], value)
            elif node in call.outs and node.requires_grad:
                found[node] = function_output(token, value, call.outs.index(node))
            else:
                found[node] = value
        inner = [n for n in values if n.requires_grad and found[n] is values[n]]
        begun = given | {n: m for n, m in found.items() if n not in inner}
        if any(n.op is ops.leaf for n in between(inner, set(begun)) - set(begun)):
            raise NotImplementedError(
                "saved_tensors_hooks: a second derivative needs an operand of "
                f"{call.outs[0].op.name} that the call didn't save{at_user_line()}"
            )
        for node, made in zip(inner, substitute(inner, begun), strict=True):
            found[node] = ops.with_value(made, values[node])
        return found
