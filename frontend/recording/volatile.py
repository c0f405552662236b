"""Calls of a program that does new work, computed at once.

A program's first step, a text that grows by a token, or a loop that keeps fewer boxes in each round
meets no call twice. To record such a call costs many times what it computes. So where work is new,
calls are computed as PyTorch computes them, by templates that are learned from the first calls
(`families.py`) or before (`lessons.py`). Those that gradients flow through are noted on a tape
(`tape.py`).

Whether it does is the matter of `novelty.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, bool_, complex32, int64
from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant, constant_value
from tilewright.ir.shape import Size, shape_of
from tilewright.runtime import devices
from tilewright.runtime.baseline.step_forms import Shared

from . import epoch, flushing, novelty, taped_writes, views
from .at_once import (
    MOST,
    fill,
    is_leaf,
    is_tracked,
    may_compute,
    places,
    writes_values_alone,
    written,
)
from .builders import facts, is_blind, refuses_bools
from .epoch import GRADIENT, clock
from .families import REMEMBERED, Known, Number, comes_again, met, note_error
from .numbers import default_dtype, key_of, scalar_dtype
from .states import Aval, Handle
from .tape import Call, Refused, is_kept_apart, let_overwrite, note, rebound, target_of
from .taped_writes import may_write
from .wrapping import of_array


def computed(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The results of a call, as a tensor or a tuple of tensors; None if it must be recorded."""
    if epoch.fallible or not may_compute():
        return None  # what reads the result makes the checks
    tracked = graph.grad_enabled()
    taping = tracked and clock.taping
    is_usual = (taping or not tracked) and not epoch.inferred
    tensor_type, parameter_type = epoch.tensor_type, epoch.parameter_type
    key: list[Any] = [build]
    operands, arrays, avals, targets = [], [], [], []
    flows = False
    for each in args:
        kind = each.__class__
        if (
            is_usual
            and (kind is tensor_type or kind is parameter_type)
            and each._node is None
            and each._storage is None
            and (each._shared is None or not taping)
            and each._buffer.__class__ is np.ndarray
        ):  # what `operand` makes of nearly all
            array, aval = each._buffer, each._aval
            target = (each._history or (each if each._requires_grad else None)) if taping else None
        elif isinstance(each, Handle):
            found = operand(each, taping)
            if found is None:
                return None
            array, aval, target = found
        elif kind is Node:
            return None  # of this epoch
        else:
            key.append(each)
            continue
        if target is not None:
            flows = True
            key.append(GRADIENT)
        key.append(aval)
        operands.append(each)
        arrays.append(array)
        avals.append(aval)
        targets.append(target)
    if not arrays:
        return None
    to = targets if flows else None
    return _found(tuple(key), args, operands, arrays, avals, to)


def operand(t: Any, taping: bool) -> tuple[np.ndarray, Any, Any] | None:
    """The value of an operand, its aval, and where its gradient goes; None if it has no value that
    can be used. taping: whether the tape takes gradients."""
    if t.__class__ is Number:
        return np.asarray(t.value, np.int64), _OF_NUMBER, None
    node = t._node if t.__class__ is epoch.tensor_type else None  # others' may stand for parts
    if node is not None and node.op is ops.constant_op:
        return constant_operand(node)
    chain, aval = t._chain, t._aval
    state: Any = t if t._storage is None else t._storage
    if (
        (
            t.__class__ is epoch.tensor_type
            or (t.__class__ is epoch.parameter_type and chain is None)
        )
        and (taping or not graph.grad_enabled())
        and not epoch.inferred
        and t._node is None is state._node
        and (state._shared is None or not taping)
        and state._buffer.__class__ is np.ndarray
    ):  # what follows makes of nearly all
        if chain is None and t._root is None:
            target = (state._history or (t if t._requires_grad else None)) if taping else None
            return state._buffer, state._aval, target
        if chain is not None and aval[2] == "cpu" and views.numel(chain.size or ()) <= MOST:
            array = views.seen_in(state._buffer, chain)
            if array is None:
                return None
            if not taping:
                return array, aval, None
            try:
                target = target_of(t)
            except Refused:
                return None
            return array.copy() if is_kept_apart(state) else array, aval, target
    array = _value(t, taping)
    if array is None:
        return None
    target = None
    if taping:
        state = t._storage or t
        if state._shared is not None or (t._chain is not None and is_kept_apart(state)):
            array = array.copy()  # others may write to that memory
        if epoch.inferred and state._changes is epoch.untracked:
            return None  # a tensor of inference mode
        try:
            target = target_of(t)
        except Refused:
            return None
    return array, (shape_of(array.shape), t.dtype, "cpu"), target


def called(
    build: Callable[..., Any],
    operands: list[Any],
    arrays: list[Any],
    avals: list[Aval],
    targets: list[Any],
    sizes: Sequence[Any],
) -> Any:
    """The results of a call of operands and sizes, whatever gradients flow through it; None if it
    must be recorded. arrays, avals, targets: see `operand`."""
    flows = False
    key: list[Any] = [build]
    for aval, target in zip(avals, targets):
        if target is not None:
            flows = True
            key.append(GRADIENT)
        key.append(aval)
    args = (*operands, *sizes)
    to = targets if flows else None
    return _found((*key, *sizes), args, operands, arrays, avals, to)


_OF_NUMBER: Aval = (Size(()), int64, "cpu")


@functools.lru_cache(4096)
def constant_operand(node: Node) -> tuple[np.ndarray, Aval, Any]:
    """A number among the operands, as of `operand`."""
    array = np.asarray(constant_value(node))
    return array, (shape_of(array.shape), node.dtype, "cpu"), None


def _found(
    key: tuple[Any, ...],
    args: Sequence[Any],
    operands: list[Any],
    arrays: list[Any],
    avals: list[Aval],
    targets: list[Any] | None,
) -> Any:
    """The results of a call, of which nothing is missing; None if it must be recorded.

    key: all that they follow from but the values of the operands. operands: those among `args`.
    arrays, avals: theirs. targets: where their gradients go; None if none of them has one.
    """
    if clock.effects != novelty.looked and not novelty.lasts():
        return None
    try:
        known = epoch.known.get(key)
    except TypeError:  # an unhashable argument: the recorded call has its message
        return None
    if known is not None:
        return again(known, operands, arrays, targets)
    shared: Shared = {}
    found = _met(key, args, arrays, avals, targets, shared)
    return None if found is None else _noted(*found, operands, arrays, targets, shared)


def again(known: Known, operands: list[Any], arrays: list[Any], targets: list[Any] | None) -> Any:
    """The results of a known call; None if it must be recorded."""
    shared: Shared = {}
    try:
        made = known.made(arrays, shared) if known.bare is None else known.bare(*arrays)
    except Exception as error:  # the recorded call has it, too
        pass_on(error)
        note_error(error)
        return None
    return _noted(known, made, operands, arrays, targets, shared)


def _noted(
    known: Known,
    made: Any,
    operands: list[Any],
    arrays: list[Any],
    targets: list[Any] | None,
    shared: Shared,
) -> Any:
    """The results of a call as tensors, noted on the tape if gradients flow through it."""
    novelty.noted.append(known.noted)
    template = known.template
    if template.is_single and known.forward.is_single:  # nearly all
        t = of_array(made, known.avals[0])
        if targets is not None and template.seeds:
            kept = template.kept(arrays, (made,))
            note(Call(known, operands, arrays, targets, kept, shared), (t,))
        return t
    if targets is None:
        return tuple(map(of_array, made, known.avals))
    rows = [made] if known.forward.is_single else made
    tensors = tuple(map(of_array, rows, known.avals))
    if template.seeds:
        note(Call(known, operands, arrays, targets, template.kept(arrays, rows), shared), tensors)
    return tensors[0] if template.is_single else tensors


def made(
    call: tuple[Any, ...], arrays: Sequence[np.ndarray], avals: Sequence[Aval]
) -> Sequence[np.ndarray] | None:
    """The results of a call without gradient, of which there are several; None if it must be
    recorded.

    call: its builder, and the arguments before its operands. arrays, avals: of the operands.
    """
    if not novelty.lasts():
        return None
    key = (*call, *avals)
    known = epoch.known.get(key)
    try:
        found = known.made(arrays, {}) if known is not None else None
    except Exception as error:  # the recorded call has its message
        pass_on(error)
        return None
    if known is None:
        met = _met(key, (*call[1:], *arrays), list(arrays), list(avals), None, {})
        if met is None:
            return None
        known, found = met
    novelty.noted.append(known.noted)
    return found  # type: ignore[no-any-return]


def _met(
    key: tuple[Any, ...],
    args: Sequence[Any],
    arrays: list[Any],
    avals: list[Aval],
    targets: list[Any] | None,
    shared: Shared,
) -> tuple[Known, Any] | None:
    """A call that isn't known, and what it makes. It is known from the second time on."""
    for aval, array in zip(avals, arrays):
        if aval[2] != "cpu":
            return None  # memory of another device may be an array as well
        if array.size > novelty.LARGE:
            novelty.is_large()
            return None
    found = met(key, args, arrays, avals, targets, shared)
    if found is not None and comes_again(found[0].noted[0]):
        epoch.known[key] = found[0]
    return found


def computed_beside(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """The result of a call on a tensor and a Python number; None if it must be recorded."""
    if is_blind(build):
        return _beside(build, t, (value,), swapped)
    found = _at_rest_beside(t)
    token = key_of(value)
    if found is None or token is None:
        return None
    array, aval, target = found
    try:
        other = _constant(build, aval[1], default_dtype(), token, value.__class__, value)
    except (OverflowError, ValueError, RuntimeError):  # the recorded call says what it is
        return None
    key = (build, aval, target is not None, other, swapped)
    args = (other, t) if swapped else (t, other)
    to = None if target is None else [target]
    return _found(key, args, [t], [array], [aval], to)


def computed_between(build: Callable[..., Any], t: Any, *values: Any) -> Any:
    """The result of a call on a tensor and Python numbers, which its builder doesn't look at; None
    if it must be recorded."""
    return _beside(build, t, values, False) if isinstance(t, Handle) else None


def _beside(build: Callable[..., Any], t: Any, values: Sequence[Any], swapped: bool) -> Any:
    """The result of a call on a tensor and numbers, which become operands as it is."""
    found = _at_rest_beside(t)
    if found is None:
        return None
    array, aval, target = found
    operands, arrays, avals = [t], [array], [aval]
    for value in values:
        number = _number(build, aval[1], value)
        if number is None:
            return None
        operands.append(number[0])
        arrays.append(number[0])
        avals.append(number[1])
    targets = None if target is None else [target, *[None] * len(values)]
    if swapped:
        for row in (operands, arrays, avals, targets or []):
            row.reverse()
    key = (build, target is not None, swapped, *avals)
    return _found(key, operands, operands, arrays, avals, targets)


def _at_rest_beside(t: Any) -> tuple[np.ndarray, Aval, Any] | None:
    """A tensor beside numbers, as of `operand`; None if the call must be recorded."""
    if not may_compute():
        return None
    found = operand(t, graph.grad_enabled() and clock.taping)
    return None if found is None or found[1][1] in _NARROW else found


_NARROW = {*HALVES, complex32}
"""The dtypes beside which a number isn't what NumPy makes of it."""


def _number(build: Callable[..., Any], of: DType, value: Any) -> tuple[np.ndarray, Aval] | None:
    """A number beside a tensor of a dtype, as an array, and its aval; None if the recorded call
    says what it is."""
    kind, default = value.__class__, default_dtype()
    if (kind is float or kind is int) and (LEAST_NUMBER < abs(value) < MOST_NUMBER or not value):
        aval = usual_number(build, of, default, kind)
        try:
            return np.asarray(value, aval[1].np), aval
        except OverflowError:
            pass
    token = key_of(value)
    if token is None:
        return None
    try:
        return _known_number(build, of, default, token, kind, value)
    except (OverflowError, ValueError, RuntimeError):
        return None


LEAST_NUMBER, MOST_NUMBER = 1e-30, 1 << 31
"""Between them are the magnitudes of which no conversion to a dtype warns."""


@functools.lru_cache(REMEMBERED)
def usual_number(build: Callable[..., Any], of: DType, default: DType, kind: type) -> Aval:
    """The aval of a usual number of a kind beside a tensor."""
    return _known_number(build, of, default, 1, kind, kind(1))[1]


@functools.lru_cache(REMEMBERED)
def _known_number(*said: Any) -> tuple[np.ndarray, Aval]:
    """The array and the aval of a number, said as to `_constant`."""
    node = _constant(*said)
    return np.asarray(constant_value(node)), (Size(()), node.dtype, "cpu")


@functools.lru_cache(REMEMBERED)
def _constant(
    build: Callable[..., Any], of: DType, default: DType, token: Any, kind: type, value: Any
) -> Node:
    """A number beside a tensor of a dtype, as a node."""
    dtype = bool_ if kind is bool and build in refuses_bools else scalar_dtype(of, value)
    said = facts(build)
    if not dtype.is_differentiable and said is not None and said.floats:
        dtype = default
    return constant(value, dtype)


def overwritten(build: Callable[..., Any], input: Any, args: Sequence[Any]) -> bool:
    """Whether `input` was overwritten with the result of a call at once."""
    if _is_tracked(input) and not (clock.taping and (_may_rebind(input) or may_write(input))):
        return False
    made = computed(build, (input, *args))
    return made is not None and replaced(input, made)


def _is_tracked(t: Any) -> bool:
    storage = t._storage
    return is_tracked(t) or (
        storage is not None and (storage._requires_grad or storage._history is not None)
    )


def replaced(t: Any, made: Any) -> bool:
    """Whether the value of `t` was replaced at once with that of the result of a call."""
    if made._node is not None or made.dtype is not t.dtype:
        return False
    if made._history is None:  # a history of `t` ends there, which is recorded
        if writes_values_alone(t):
            return _has_taken(t, made) or written(t, ..., made)
        return wrote(t, made)
    if _may_rebind(t):
        return rebound(t, made)
    if not may_write(t):
        return False
    let_overwrite(t, made)
    return wrote(t, made)


def wrote(t: Any, value: Any) -> bool:
    """Whether the value of the tensor `value` was written to all of `t` at once, with a history."""
    if not may_write(t) or not novelty.lasts():
        return False
    found = operand(value, True)
    if found is None or found[1][1] is not t.dtype:
        return False
    return taped_writes.written(t, value, found[0], found[2])


def _has_taken(t: Any, made: Any) -> bool:
    """Whether `t`, at whose memory nothing else looks, got that of `made`."""
    if t.__class__ is not epoch.tensor_type or t._node is not None or t._aval != made._aval:
        return False
    if any([each is not None for each in (t._storage, t._shared, made._storage, made._shared)]):
        return False
    t._changes += 1  # an error for an inference tensor
    t._buffer = made._buffer
    return True


def refilled(t: Any, make: Callable[[], np.ndarray | None]) -> bool:
    """Whether the value of `t` was replaced at once with an array of its shape and dtype.

    make: it, called where nothing but the array is missing; or None."""
    kind = type(t)
    if kind is not epoch.tensor_type and kind is not epoch.parameter_type:
        return False
    if t._storage is not None or t._shared is not None or t._root is not None:
        return False
    if t._history is not None or (t._requires_grad and graph.grad_enabled()):
        return False
    if t._node is not None and (t._requires_grad or not fill(t)):
        return False
    made = make()
    if made is None:
        return False
    t._changes += 1  # an error for an inference tensor
    t._buffer = made
    return True


def _may_rebind(t: Any) -> bool:
    """Whether the history of `t` may be replaced: nothing else looks at its memory, and nothing in
    this epoch has read it."""
    return (
        graph.grad_enabled()
        and type(t) is epoch.tensor_type
        and t._storage is None
        and t._node is None
        and t._shared is None
        and not (t._requires_grad or t._hooks)
    )


def may_view(t: Any, detaches: bool = False) -> bool:
    """Whether a view of `t`, which may have a gradient, needs no node until it is read. detaches:
    whether no gradient flows through it."""
    state: Any = t if t._storage is None else t._storage
    if state._node is not None or state._buffer.__class__ is not np.ndarray:
        return False
    chain = t._chain
    if chain is not None and chain.multiple is not None and t._writes != t._storage._writes:
        return False  # the base was written to, which is an error
    if t._shared is not None or (t._root is not None and not detaches):
        return False
    if epoch.inferred and state._changes is epoch.untracked:
        return False
    return clock.taping and may_compute()


def picked(t: Any, key: Any) -> Any:
    """t[key], where parts of the key are positions or masks; None if it must be recorded."""
    if not may_compute():
        return None
    found = places(key, _value)
    if found is None or not found[1]:
        return None
    array = _value(t)
    if array is None or array.size > MOST:
        return None
    part, at = found
    try:
        made = array[part][at]
    except (IndexError, ValueError):  # the recorded call has the better message
        return None
    return tensor(np.array(made, order="C", copy=None), t.dtype)


def tensor(array: np.ndarray, dtype: DType) -> Any:
    return of_array(array, (shape_of(array.shape), dtype, "cpu"))


def at_rest(t: Any) -> np.ndarray | None:
    """The value of a tensor on the host that needs no flush; None if it has none."""
    state: Any = t if t._storage is None else t._storage
    if state._node is not None and not is_leaf(state):
        return None
    return _value(t, True)


def value(t: Any) -> np.ndarray | None:
    """The value of a tensor on the host, for what no gradient flows through; None if it has
    none."""
    return _value(t, True)


def _value(t: Any, taping: bool = False) -> np.ndarray | None:
    """The value of a tensor on the host; None if it has none, or a gradient flows through it and
    isn't `taping`."""
    if type(t) is not epoch.tensor_type and type(t) is not epoch.parameter_type:
        return None
    if t._node is not None and t._node.op is ops.constant_op:
        return constant_operand(t._node)[0]
    state: Any = t if t._storage is None else t._storage
    closed = not taping and graph.grad_enabled()
    if closed and (t._requires_grad or t._root is not None or _flows(t) or _flows(state)):
        return None
    if state._node is not None and not is_leaf(state) and not fill(state, False):
        node = state._node
        if node.device not in (None, "cpu") or views.numel(node.shape) > MOST or not _may_flush():
            return None
        flushing.flush()
        if state._node is not None or (closed and _flows(state)):
            return None
    if type(state._buffer) is not np.ndarray or state._aval[2] != "cpu":
        return None
    if t._chain is not None and views.numel(t.shape) > MOST:
        return None
    return views.seen_in(devices.get("cpu").to_numpy(state._buffer), t._chain)


def _flows(state: Any) -> bool:
    return state._requires_grad or state._history is not None


def _may_flush() -> bool:
    """Whether the epoch may end within a call: nothing waits for a backward pass."""
    if clock.holding or clock.differentiated or flushing.is_refusing():
        return False
    return not epoch.variables or not any(
        t._node is not None and t._node.requires_grad and t._node.op is not ops.variable
        for t in epoch.handles
    )
