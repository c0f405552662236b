"""Known calls on tensors that have their values and no gradient: what programs do all the time.

`volatile.py` computes every call at once that can be. Here are those that need nothing but a look
at the types and sizes of their operands. A call of a function is a tenth of their time: so this
code calls none that it can do without, and its conditions are written out for each form of a call.
Memory that NumPy may see is read as it is: the call is over before somebody can write to it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.interruption import pass_on
from tilewright.ir.node import Node
from tilewright.ir.shape import Size
from tilewright.runtime.baseline.copies import copied

from . import epoch, novelty, views
from .at_once import MOST, may_compute
from .builders import BLIND
from .epoch import clock
from .families import Known, first, note_error
from .numbers import default_dtype
from .states import Aval, Handle
from .volatile import (
    LEAST_NUMBER,
    MOST_NUMBER,
    again,
    computed,
    computed_beside,
    computed_between,
    constant_operand,
    usual_number,
)
from .wrapping import of_array

_known = epoch.known.get
_noted = novelty.noted.append


def of_one(build: Callable[..., Any], t: Any) -> Any:
    """The result of a call on one tensor; None if it must be recorded."""
    kind = t.__class__
    if (
        (kind is epoch.tensor_type or kind is epoch.parameter_type)
        and t._node is None
        and not ((t._requires_grad or t._history is not None) and graph.grad_enabled())
        and (array := t._buffer if t._storage is None else _seen(t)).__class__ is np.ndarray
        and (clock.effects == novelty.looked or novelty.lasts())
        and not epoch.fallible
        and may_compute()
    ):
        key = (build, t._aval)
        known = _known(key)
        if known is None:
            made = _first(key, (array,), key[1:])
            return computed(build, (t,)) if made is None else made
        if known.bare is not None:
            return _made(known, array)
    return computed(build, (t,))


def of_two(build: Callable[..., Any], t: Any, other: Any) -> Any:
    """The result of a call on two tensors; None if it must be recorded."""
    kind, its_kind = t.__class__, other.__class__
    if (
        (kind is epoch.tensor_type or kind is epoch.parameter_type)
        and (its_kind is epoch.tensor_type or its_kind is epoch.parameter_type)
        and t._node is None
        and other._node is None
        and not ((t._requires_grad or t._history is not None) and graph.grad_enabled())
        and not ((other._requires_grad or other._history is not None) and graph.grad_enabled())
        and (array := t._buffer if t._storage is None else _seen(t)).__class__ is np.ndarray
        and (its := other._buffer if other._storage is None else _seen(other)).__class__
        is np.ndarray
        and (clock.effects == novelty.looked or novelty.lasts())
        and not epoch.fallible
        and may_compute()
    ):
        key = (build, t._aval, other._aval)
        known = _known(key)
        if known is None:
            made = _first(key, (array, its), key[1:])
            return computed(build, (t, other)) if made is None else made
        if known.bare is not None:
            return _made(known, array, its)
    return computed(build, (t, other))


def of_all(build: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    """The results of a call on tensors and attrs; None if it must be recorded."""
    tensor_type, parameter_type = epoch.tensor_type, epoch.parameter_type
    key: list[Any] = [build]
    arrays: list[Any] = []
    avals: list[Any] = []
    for each in args:
        kind = each.__class__
        if kind is tensor_type or kind is parameter_type:
            node = each._node
            if node is not None and node.op is ops.constant_op:
                array, aval, _ = constant_operand(node)
                key.append(aval)
                avals.append(aval)
                arrays.append(array)
                continue
            if (
                node is not None
                or ((each._requires_grad or each._history is not None) and graph.grad_enabled())
                or (array := each._buffer if each._storage is None else _seen(each)).__class__
                is not np.ndarray
            ):
                return computed(build, args)
            key.append(each._aval)
            avals.append(each._aval)
            arrays.append(array)
        elif kind is Node or isinstance(each, Handle):
            return computed(build, args)
        else:
            key.append(each)
    is_volatile = clock.effects == novelty.looked or novelty.lasts()
    if is_volatile and not epoch.fallible and may_compute():
        whole = tuple(key)
        try:
            known = _known(whole)
        except TypeError:  # an unhashable argument: the recorded call has its message
            return None
        if known is None:
            made = _first(whole, arrays, avals)
            return computed(build, args) if made is None else made
        if known.bare is None:
            return again(known, [], arrays, None)
        return _made(known, *arrays)
    return computed(build, args)


def beside(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """The result of a call on a tensor and a Python number, which comes first if `swapped`; None if
    it must be recorded."""
    kind, its_kind = t.__class__, value.__class__
    if (
        (kind is epoch.tensor_type or kind is epoch.parameter_type)
        and (its_kind is float or its_kind is int)
        and (LEAST_NUMBER < abs(value) < MOST_NUMBER or not value)
        and build in BLIND
        and t._node is None
        and not ((t._requires_grad or t._history is not None) and graph.grad_enabled())
        and (array := t._buffer if t._storage is None else _seen(t)).__class__ is np.ndarray
        and (clock.effects == novelty.looked or novelty.lasts())
        and not epoch.fallible
        and may_compute()
    ):
        aval = t._aval
        its = usual_number(build, aval[1], default_dtype(), its_kind)
        key = (build, False, True, its, aval) if swapped else (build, False, False, aval, its)
        known = _known(key)
        if known is None or known.bare is not None:
            try:
                number = np.asarray(value, its[1].np)
            except OverflowError:
                return computed_beside(build, t, value, swapped)
            arrays = (number, array) if swapped else (array, number)
            made = _first(key, arrays, key[3:]) if known is None else _made(known, *arrays)
            if made is not None or known is not None:
                return made
    return computed_beside(build, t, value, swapped)


def between(build: Callable[..., Any], t: Any, values: Sequence[Any]) -> Any:
    """The result of a call on a tensor and Python numbers after it, at which its builder doesn't
    look; None if it must be recorded."""
    if (
        t.__class__ is epoch.tensor_type
        and all([-MOST_NUMBER < each < MOST_NUMBER for each in values])
        and t._node is None
        and not ((t._requires_grad or t._history is not None) and graph.grad_enabled())
        and (array := t._buffer if t._storage is None else _seen(t)).__class__ is np.ndarray
        and (clock.effects == novelty.looked or novelty.lasts())
        and not epoch.fallible
        and may_compute()
    ):
        aval: Any = t._aval
        kinds: list[Any] = [each.__class__ for each in values]
        avals = [usual_number(build, aval[1], default_dtype(), kind) for kind in kinds]
        key = (build, False, False, aval, *avals)
        known = _known(key)
        if known is None or known.bare is not None:
            try:
                numbers = [np.asarray(each, its[1].np) for each, its in zip(values, avals)]
            except OverflowError:
                return computed_between(build, t, *values)
            arrays = (array, *numbers)
            made = _first(key, arrays, key[3:]) if known is None else _made(known, *arrays)
            if made is not None or known is not None:
                return made
    return computed_between(build, t, *values)


def reshaped(t: Any, shape: Size) -> Any:
    """The elements of a tensor in another shape, copied; None if that must be recorded."""
    if (
        t.__class__ is epoch.tensor_type
        and t._node is None
        and not ((t._requires_grad or t._history is not None) and graph.grad_enabled())
        and (array := t._buffer if t._storage is None else _seen(t)).__class__ is np.ndarray
        and (aval := t._typed())[2] == "cpu"
        and (clock.effects == novelty.looked or novelty.lasts())
        and not epoch.fallible
        and may_compute()
    ):
        _noted((hash((reshaped, array.shape, array.strides, shape)), array.size))
        return of_array(copied(array).reshape(shape), (shape, aval[1], "cpu"))
    return None


def _seen(t: Any) -> Any:
    """The value of a tensor that shares its memory, or looks at it; None if it isn't there, or has
    a gradient."""
    storage, chain, root = t._storage, t._chain, t._root
    if storage._node is not None:
        return None
    if root is None:
        if (storage._requires_grad or storage._history is not None) and graph.grad_enabled():
            return None
    elif root.source() is not None:
        return None
    array = storage._buffer
    if chain is None or array.__class__ is not np.ndarray:
        return array
    return views.seen_in(array, chain) if views.numel(chain.size or ()) <= MOST else None


def _first(key: tuple[Any, ...], arrays: Sequence[Any], avals: Sequence[Aval]) -> Any:
    """The result of a call that isn't known, mostly of new sizes; None if it can't be computed in
    this way. arrays, avals: of its operands."""
    found = first(key, arrays, avals)
    if found is None:
        return None
    made, aval, noted = found
    _noted(noted)
    return of_array(made, aval)


def _made(known: Known, *arrays: np.ndarray) -> Any:
    """The result of a known call of these operands, which has one; None if it must be recorded."""
    assert known.bare is not None
    try:
        made = known.bare(*arrays)
    except Exception as error:  # the recorded call has it, too
        pass_on(error)
        note_error(error)
        return None
    _noted(known.noted)
    return of_array(made, known.avals[0])
