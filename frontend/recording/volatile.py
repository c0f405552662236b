"""Calls of a program that keeps doing new work, computed at once.

A text that grows by a token, or a loop that keeps fewer boxes in each round, meets no call twice.
To record such a call costs many times what it computes, and nothing is ever found again. So where
graphs keep being new, calls that need no gradient are computed as PyTorch computes them, by
templates that are learned from the first calls (`runtime/baseline/templates.py`).

Whether it does is the matter of `novelty.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, bool_
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant, constant_value, leaf
from tilewright.ir.shape import Size
from tilewright.runtime import debug, tiers
from tilewright.runtime.baseline import timed
from tilewright.runtime.baseline.templates import Example, Template, Untold

from . import epoch, flushing, novelty, views, wrapping
from .at_once import MOST, fill, is_plain, is_tracked, written
from .builders import facts, is_blind, name_of, refuses_bools, takes_sizes
from .epoch import Handle, clock
from .numbers import default_dtype, key_of, scalar_dtype
from .rounding import rounded_once

_EXAMPLES = 6
"""The examples of a call, after which it is recorded if they still don't tell."""
_REMEMBERED = 4096
"""Families of calls, and numbers in them, that are remembered."""


class _Family:
    """Calls of a builder that differ in sizes alone.

    template: what computes them; None if it isn't known. examples: of the calls. failed: whether
    they are recorded.
    """

    __slots__ = ("examples", "failed", "template")

    def __init__(self) -> None:
        self.examples: list[Example] = []
        self.template: Template | None = None
        self.failed = False

    def learn(
        self,
        build: Callable[..., Any],
        args: Sequence[Any],
        arrays: Sequence[Any],
        number: DType | None,
        sizes: Sequence[Any],
    ) -> None:
        """Add an example of the call."""
        given = iter(arrays)
        operands: list[Node] = []
        nodes: list[Any] = []
        for each in args:
            if each is _PLACE or isinstance(each, Handle):
                dtype: Any = number if each is _PLACE else each.dtype
                operands.append(leaf(len(operands), Size(next(given).shape), dtype))
                nodes.append(operands[-1])
            else:
                nodes.append(each)
        try:
            with graph.grad_mode(False):
                example = Example(operands, rounded_once(build, [*nodes, *sizes]), sizes)
            known = any(e.shapes == example.shapes for e in self.examples)
            if not known:
                self.examples.append(example)
            if known or len(self.examples) > 1:
                self.template = Template(self.examples)
            self.failed = len(self.examples) > _EXAMPLES
        except Exception:  # Untold, or an error, which the recorded call has in the user's line
            self.failed = True
        if self.failed:
            debug.say(f"calls of {name_of(build) or build} are recorded: no template computes them")
            self.examples.clear()
            self.template = None


_PLACE: Any = object()
"""Stands for a number that is an operand among the arguments of a call."""


def may_compute() -> bool:
    """Whether calls are made for their values alone, and nobody wants to see or time them."""
    return timed.tell is None and tiers.mode != tiers.FUSED and is_plain()


def computed(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The results of a call, as a tensor or a tuple of tensors; None if it must be recorded."""
    if Node in map(type, args) or not may_compute():  # a node is of this epoch, as a seed is
        return None
    arrays: list[Any] = []
    key: list[Any] = [build]
    sizes: tuple[Any, ...] = ()
    if build in takes_sizes:
        *args, last = args
        sizes = (last,)
        key.append(len(last))
    for each in args:
        if isinstance(each, Handle):
            array = _value(each)
            if array is None or array.size > MOST:
                return None
            arrays.append(array)
            key.append((each.dtype, *[n if n < 2 else 2 for n in array.shape]))
        else:
            key.append(each)
    return _found(build, key, args, arrays, None, sizes) if arrays else None


def computed_beside(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """The result of a call on a tensor and a Python number; None if it must be recorded."""
    if t.dtype in HALVES or not may_compute():
        return None
    array, token = _value(t), key_of(value)
    if array is None or array.size > MOST or token is None:
        return None
    kind = (t.dtype, *[n if n < 2 else 2 for n in array.shape])
    blind = is_blind(build)
    try:
        other = _constant(build, t.dtype, default_dtype(), token, value.__class__, value)
    except (OverflowError, ValueError, RuntimeError):  # the recorded call says what is wrong
        return None
    number: Any = _PLACE if blind else other
    args = (number, t) if swapped else (t, number)
    key = [build, swapped, kind, other.dtype if blind else other]
    if not blind:
        return _found(build, key, args, [array])
    value = np.asarray(constant_value(other))
    return _found(build, key, args, [value, array] if swapped else [array, value], other.dtype)


@functools.lru_cache(_REMEMBERED)
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
    if is_tracked(input) or (input._storage is not None and is_tracked(input._storage)):
        return False
    made = computed(build, (input, *args))
    return made is not None and replaced(input, made)


def replaced(t: Any, made: Any) -> bool:
    """Whether the value of `t` was replaced at once with that of the result of a call."""
    return made._node is None and made.dtype is t.dtype and written(t, ..., made)


def picked(t: Any, key: Any) -> Any:
    """t[key], where one part of the key is a tensor of positions and others are ints and slices;
    None if it must be recorded."""
    parts = key if key.__class__ is tuple else (key,)
    places = [i for i, p in enumerate(parts) if isinstance(p, Handle)]
    if len(places) != 1 or not may_compute():
        return None
    (at,) = places
    positions, array = _value(parts[at]), _value(t)
    if (
        positions is None
        or array is None
        or positions.dtype.kind != "i"
        or not positions.ndim  # a number, whose place is a view
        or max(array.size, positions.size) > MOST
    ):
        return None
    if len(parts) > 1:
        others = [slice(None) if i == at else p for i, p in enumerate(parts)]
        if any([p.__class__ is not slice and p.__class__ is not int for p in others]):
            return None
        if any([p.__class__ is slice and p.step is not None for p in others]):
            return None  # a step back is an error, but not to NumPy
    try:
        if len(parts) > 1:
            array = array[tuple(others)]
        axis = len([p for p in parts[:at] if p.__class__ is slice])
        place: Any = (*[slice(None)] * axis, positions)
        made = array[place]
    except (IndexError, TypeError, ValueError):  # the recorded call has the better message
        return None
    return _tensor(np.array(made, order="C", copy=None), t.dtype)


def _found(
    build: Callable[..., Any],
    key: list[Any],
    args: Sequence[Any],
    arrays: list[Any],
    number: DType | None = None,
    sizes: tuple[Any, ...] = (),
) -> Any:
    """number: the dtype of the operand that no tensor is. sizes: the last argument, if it is a
    shape."""
    if not novelty.lasts():
        return None
    place = tuple(key)
    try:
        family = epoch.families.get(place)
    except TypeError:  # an unhashable argument, which is an error
        return None
    if family is None:
        if len(epoch.families) >= _REMEMBERED:
            epoch.families.clear()
        family = epoch.families[place] = _Family()
    if family.failed:
        return None
    if family.template is None:
        family.learn(build, args, arrays, number, sizes)
        if family.template is None:
            return None
    template = family.template
    try:
        made = template(arrays, sizes)
    except Untold:
        family.learn(build, args, arrays, number, sizes)
        return None
    except Exception:  # the recorded call has the better message
        return None
    novelty.note((id(template), *[a.shape for a in arrays]))
    if template.is_single:
        return _tensor(made[0], template.dtypes[0])
    return tuple([_tensor(a, d) for a, d in zip(made, template.dtypes)])


def _tensor(array: np.ndarray, dtype: DType) -> Any:
    t = wrapping.blank()
    t._buffer = array
    t._aval = (Size(array.shape), dtype, "cpu")
    return t


def _value(t: Any) -> np.ndarray | None:
    """The value of a tensor on the host through which no gradient flows; None if it has none."""
    if type(t) is not epoch.tensor_type and type(t) is not epoch.parameter_type:
        return None
    if t._node is not None and t._node.op is ops.constant_op:
        return np.asarray(constant_value(t._node))
    state: Any = t if t._storage is None else t._storage
    if graph.grad_enabled() and (
        t._requires_grad
        or t._history is not None
        or t._root is not None
        or state._requires_grad
        or state._history is not None
    ):
        return None
    if state._node is not None and not _is_leaf(state) and not fill(state, False):
        if state._node.device not in (None, "cpu") or not _may_flush():
            return None
        flushing.flush()
        if state._node is not None:
            return None
    if type(state._buffer) is not np.ndarray or state._aval[2] != "cpu":
        return None
    if t._chain is not None and views.numel(t.shape) > MOST:
        return None
    return views.seen_in(state._buffer, t._chain)


def _may_flush() -> bool:
    """Whether the epoch may end within a call: nothing waits for a backward pass."""
    if clock.holding or clock.differentiated or flushing.is_refusing():
        return False
    return not epoch.variables or not any(
        [t._node is not None and t._node.requires_grad for t in epoch.handles]
    )


def _is_leaf(state: Any) -> bool:
    """Whether this epoch has read the value of a state, and not written to it."""
    place = state._place
    if not 0 <= place < len(epoch.leaves):
        return False
    owner, node, _ = epoch.leaves[place]
    return owner is state and node is state._node
