"""backward and grad: gradients of tensors with respect to leaves or to given tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.runtime.baseline.quiet import quietly

from .. import recording
from ..functions.joining import stack
from ..overriding import state
from ..recording import Handle, compounds, resolve, volatile
from . import taped
from .engine import gradients
from .grad_fn import GradientEdge
from .hook_calls import after_hooks, call_hooks
from .hooks import call_queued, follow, one_pass
from .rows import accumulated, as_tensor, of_rows

if TYPE_CHECKING:
    from .._tensor import Tensor


def _tuple(value: Any) -> tuple[Any, ...]:
    return (value,) if isinstance(value, Handle) else tuple(value)


def _tensors(value: Any) -> tuple[Any, ...]:
    given = (value,) if isinstance(value, GradientEdge) else _tuple(value)
    found = tuple(e.ownership_token if isinstance(e, GradientEdge) else e for e in given)
    for i, each in enumerate(found):
        if not isinstance(each, Handle):
            raise AssertionError(
                f"Expected outputs to be tensors, got {type(each).__name__} at {i}{at_user_line()}"
            )
    return found


def _seed(i: int, t: Any, g: Any, create_graph: bool) -> Node:
    """The cotangent of output `t`, the `i`-th: `g`, or one for a scalar."""
    node = resolve(t)
    if not node.requires_grad:
        raise RuntimeError(
            f"element {i} of tensors does not require grad and does not have a grad_fn"
            + at_user_line()
        )
    if g is None:
        if node.shape.numel() != 1:
            raise RuntimeError(
                "grad can be implicitly created only for scalar outputs, not for one of shape "
                f"{list(node.shape)}; give its gradient{at_user_line()}"
            )
        if node.dtype.is_complex:
            raise RuntimeError(
                "grad can be implicitly created only for real scalar outputs but got "
                f"{node.dtype}{at_user_line()}"
            )
        one = node.memo.get("one")
        if one is None:
            one = ops.expand(ops.constant(1, node.dtype, node.device), node.shape)
            node.memo["one"] = one
        return one
    if not isinstance(g, Handle):
        raise TypeError(
            f"gradients can be either Tensors or None, but got {type(g).__name__}{at_user_line()}"
        )
    if g.shape != node.shape:
        raise RuntimeError(
            f"Mismatch in shape: grad_output[{i}] has a shape of {g.shape} and output[{i}] has a "
            f"shape of {node.shape}.{at_user_line()}"
        )
    seed = resolve(g.to_dense() if compounds.is_compound(g) else g)
    if seed.dtype is not node.dtype:
        seed = ops.cast(seed, node.dtype)
    return seed if create_graph or not seed.requires_grad else ops.detach(seed)


def _roots(outputs: Any, given: Any, create_graph: bool) -> list[tuple[Any, Node]]:
    outs = _tensors(outputs)
    if isinstance(given, (str, bytes)):
        given = (given,)
    seeds = (None,) * len(outs) if given is None else _tuple(given)
    if len(seeds) != len(outs):
        raise RuntimeError(f"got {len(outs)} tensors and {len(seeds)} gradients{at_user_line()}")
    return [
        (t, _seed(i, t, g, create_graph)) for i, (t, g) in enumerate(zip(outs, seeds, strict=True))
    ]


def backward(
    tensors: Tensor | Sequence[Tensor],
    grad_tensors: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Tensor | Sequence[Tensor | None] | None = None,
    inputs: Tensor | Sequence[Tensor] | None = None,
) -> None:
    """Add the gradient of `tensors` with respect to each leaf to the leaf's `.grad`."""
    recording.claim()
    if state.dispatching:
        warn(
            "a backward pass runs no operators here, and asks no TorchDispatchMode for its own: "
            "torch.utils.flop_counter.FlopCounterMode counts its products",
            once=True,
        )
    wanted = None if inputs is None else list(_tuple(inputs))
    if wanted is not None and not wanted:
        raise RuntimeError(f"'inputs' argument to backward() cannot be empty.{at_user_line()}")
    keep = create_graph if retain_graph is None else retain_graph
    _end_earlier_step(create_graph)
    follow()
    with one_pass() as number:
        add = _accumulate_created if create_graph else _accumulate_at_once
        made = _over_tape(tensors, grad_tensors, wanted, keep, create_graph, True, add)
        for t, g in made or ():
            if g is not None:
                add(t, g)
    if made is not None:
        call_queued()
        return
    with recording.hold(), one_pass(number):
        roots = _roots(tensors, grad_tensors, create_graph)
        if not roots:
            return
        add_node = functools.partial(_accumulate, create_graph=create_graph)
        found = gradients(
            roots, wanted=wanted, retain_graph=keep, create_graph=create_graph, accumulate=add_node
        )
        for t, node in found:
            add_node(t, node)
    recording.settle()
    if not recording.clock.holding:  # else it is part of another pass
        call_queued()


def _over_tape(
    outputs: Any,
    given: Any,
    wanted: Sequence[Any] | None,
    retain_graph: bool,
    *options: Any,
) -> list[tuple[Any, Any]] | None:
    """The gradients, if the tape has all that they need; else None. See `taped.gradients`."""
    outs = (outputs,) if isinstance(outputs, Handle) else outputs
    if recording.clock.holding or outs.__class__ not in (tuple, list):
        return None
    seeds = (given,) if isinstance(given, Handle) else given or (None,) * len(outs)
    if seeds.__class__ not in (tuple, list) or len(seeds) != len(outs) or not outs:
        return None
    return taped.gradients(list(zip(outs, seeds)), wanted, retain_graph, *options)


def _accumulate_at_once(t: Any, array: Any) -> None:
    """As `_accumulate_tensor`, of a gradient that is an array."""
    g, held = volatile.tensor(array, t.dtype), t._grad
    if not (t._hooks or t._post_hooks or t._grad_dtype is not NotImplemented):
        if held is None and (t._requires_grad or t.requires_grad):
            t._grad = g
            return
        before = None if held.__class__ is not g.__class__ else volatile.at_rest(held)
        if before is not None and volatile.refilled(
            held, lambda: np.asarray(quietly(np.add, before, array))
        ):
            return
    _accumulate_tensor(t, g, False)


def _accumulate_created(t: Any, g: Any) -> None:
    """As `_accumulate_tensor`, of a gradient that can be differentiated again."""
    _accumulate_tensor(t, g, True)


def _accumulate_tensor(t: Any, g: Any, create_graph: bool) -> None:
    """As `_accumulate`, of a gradient that is a tensor."""
    if not (t._requires_grad or t.requires_grad):  # it was frozen since
        return
    with recording.grad_mode(create_graph):
        if t._hooks and t.is_leaf:
            g = after_hooks(t._hooks, g)
        if t._grad_dtype is not NotImplemented:
            dtype = _dtype_of_grad(t)
            g = g if dtype in (None, NotImplemented, g.dtype) else g.to(dtype)
        held = t._grad
        if held is None or compounds.is_compound(held) or compounds.is_compound(g):
            t._grad = accumulated(held, g)
        elif create_graph:
            t._grad = held + g
        else:
            held.add_(g)
        for hook in list((t._post_hooks or {}).values()):  # one may write to the leaf
            hook(t)


def _end_earlier_step(create_graph: bool) -> None:
    """End the epoch if it holds a whole step of training: a backward pass and an update by hand.

    Otherwise a loop without an optimizer that reads no value would become one graph of all its
    steps. With create_graph the pass stays in the epoch of its forward pass.
    """
    if recording.clock.stepped and not create_graph:
        recording.end_step()


def _accumulate(t: Any, node: Node, create_graph: bool) -> None:
    if not (t._requires_grad or t.requires_grad):  # it was frozen since
        return
    if t._hooks and t.is_leaf:
        node = call_hooks(t._hooks, node)
    if t._grad_dtype is not NotImplemented:
        node = _of_grad_dtype(t, node)
    held = t._grad
    if of_rows(node) or compounds.is_compound(held):
        t._grad = accumulated(held, as_tensor(node))
    elif held is None:
        t._grad = recording.wrap(node)
    elif create_graph:
        t._grad = held + recording.wrap(node)
    else:
        with recording.grad_mode(False):
            recording.assign(held, ops.add(resolve(held), node))
    if t._post_hooks:
        with recording.grad_mode(create_graph):  # a hook may write to the leaf
            for hook in list(t._post_hooks.values()):
                hook(t)


def _of_grad_dtype(t: Any, node: Node) -> Node:
    """A gradient of `t` in the dtype that its `.grad` is to have."""
    dtype = _dtype_of_grad(t)
    return node if dtype in (None, NotImplemented, node.dtype) else ops.cast(node, dtype)


def _dtype_of_grad(t: Any) -> Any:
    """The dtype that the gradient of `t` is to have; None or NotImplemented if that is open."""
    is_open = t._grad_dtype is None and t._grad is not None
    return t._grad.dtype if is_open else t._grad_dtype


def grad(
    outputs: Tensor | Sequence[Tensor],
    inputs: Tensor | Sequence[Tensor],
    grad_outputs: Tensor | Sequence[Tensor | None] | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor, ...]:
    """The gradients of (the sum of) `outputs` with respect to `inputs`, one each."""
    if is_grads_batched:
        return _each(outputs, inputs, grad_outputs, create_graph, allow_unused, materialize_grads)
    if materialize_grads and allow_unused is False:
        raise ValueError(
            "Expected allow_unused to be True or not passed when materialize_grads=True, but got: "
            f"allow_unused=False.{at_user_line()}"
        )
    recording.claim()
    wanted = list(_tensors(inputs))
    if any(map(compounds.is_compound, wanted)):
        elements = [t._elements if compounds.is_compound(t) else t for t in wanted]
        of_elements = grad(
            outputs, elements, grad_outputs, retain_graph, create_graph, only_inputs, allow_unused,
            False, materialize_grads,
        )  # fmt: skip
        return tuple(
            [
                t._like(g) if g is not None and compounds.is_compound(t) else g
                for t, g in zip(wanted, of_elements)
            ]
        )
    if not wanted:
        raise RuntimeError(f"`inputs` argument to `grad()` cannot be empty.{at_user_line()}")
    keep = create_graph if retain_graph is None else retain_graph
    _end_earlier_step(create_graph)
    follow()
    watched = any(t._hooks or t._grad_dtype is not NotImplemented for t in wanted)
    number = None
    if not watched:
        with one_pass() as number:
            may_miss = bool(allow_unused or materialize_grads)
            made = _over_tape(outputs, grad_outputs, wanted, keep, create_graph, may_miss)
        if made is not None:
            told = []
            for i, (t, g) in enumerate(made):
                if g is None:
                    g = _missing(i, t, allow_unused, materialize_grads)
                elif not create_graph:
                    g = volatile.tensor(g, t.dtype)
                told.append(g)
            return tuple(told)
    with recording.hold(), one_pass(number):
        for t in wanted:
            if not t.requires_grad:
                raise RuntimeError(
                    f"One of the differentiated Tensors does not require grad{at_user_line()}"
                )
        roots = _roots(outputs, grad_outputs, create_graph)
        found = (
            gradients(roots, wanted=wanted, retain_graph=keep, create_graph=create_graph)
            if roots
            else []
        )
        nodes = {
            id(t): call_hooks(t._hooks, node, False) if t._hooks and t.is_leaf else node
            for t, node in {id(t): (t, node) for t, node in found}.values()
        }
        nodes = {id(t): _of_grad_dtype(t, nodes[id(t)]) for t in wanted if id(t) in nodes}
        result = [
            _result(i, t, nodes.get(id(t)), allow_unused, materialize_grads)
            for i, t in enumerate(wanted)
        ]
    recording.settle()
    return tuple(result)


def _each(
    outputs: Any, inputs: Any, grad_outputs: Any, create_graph: bool, *options: bool | None
) -> tuple[Any, ...]:
    """The gradients for each of a batch of grad_outputs, which is their first dimension."""
    seeds = _tuple(grad_outputs)
    allow_unused, materialize = options
    rows = [
        grad(
            outputs, inputs, [None if s is None else s[i] for s in seeds], True, create_graph,
            allow_unused=allow_unused, materialize_grads=bool(materialize),
        )
        for i in range(next(len(s) for s in seeds if s is not None))
    ]  # fmt: skip
    return tuple(None if each[0] is None else stack(each) for each in zip(*rows, strict=True))


def _result(
    place: int, t: Any, node: Node | None, allow_unused: bool | None, materialize: bool
) -> Any:
    if node is not None:
        if node.op is ops.variable and node.requires_grad:
            node = ops.clone(node)  # a tensor of its own, not the leaf
        return as_tensor(node)
    return _missing(place, t, allow_unused, materialize)


def _missing(place: int, t: Any, allow_unused: bool | None, materialize: bool) -> Any:
    """What stands for the gradient of a tensor that none has reached."""
    if materialize:
        zero = ops.constant(0, t.dtype, str(t.device))
        return recording.wrap(ops.expand(zero, t.shape))
    if allow_unused:
        return None
    raise RuntimeError(
        f"The differentiated Tensor at index {place} appears to not have been used in the graph. "
        f"Set allow_unused=True if this is the desired behavior.{at_user_line()}"
    )
