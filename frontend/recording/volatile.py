"""Calls of a program that keeps doing new work, computed at once.

A text that grows by a token, or a loop that keeps fewer boxes in each round, meets no call twice.
To record such a call costs many times what it computes, and nothing is ever found again. So where
graphs keep being new, calls are computed as PyTorch computes them, by templates that are learned
from the first calls (`runtime/baseline/templates.py`). Those that gradients flow through are noted
on a tape (`tape.py`).

Whether it does is the matter of `novelty.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, bool_, int64
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant, constant_value, leaf
from tilewright.ir.shape import Size
from tilewright.runtime import debug, tiers
from tilewright.runtime.baseline import timed
from tilewright.runtime.baseline.derivatives import Differentiated, DifferentiatedTemplate, Join
from tilewright.runtime.baseline.templates import Example, Template, Untold

from . import epoch, flushing, novelty, views, wrapping
from .at_once import MOST, fill, is_leaf, is_plain, is_tracked, places, written
from .builders import facts, is_blind, joins, name_of, refuses_bools, takes_sizes
from .epoch import clock
from .numbers import default_dtype, key_of, scalar_dtype
from .rounding import rounded_once
from .states import Handle
from .tape import PLACE, Call, Operand, Refused, note, rebound, target_of

FEWEST = 1
"""The examples of a call from which a template is made. One tells of its own sizes alone."""
_EXAMPLES = 6
"""The examples of a call, after which it is recorded if they still don't tell."""
_REMEMBERED = 4096
"""Families of calls, and numbers in them, that are remembered."""


class _Family:
    """Calls of a builder that differ in sizes alone.

    template: what computes them; None if it isn't known. told: shapes for which it does. examples:
    of the calls. failed: whether they are recorded.
    """

    __slots__ = ("examples", "failed", "template", "told")

    def __init__(self) -> None:
        self.examples: list[Any] = []
        self.template: Any = None
        self.told: set[Any] = set()
        self.failed = False

    def learn(self, call: _Called) -> None:
        """Add an example of the call."""
        build = call.build
        try:
            example, kind = call.example()
            known = any(e.shapes == example.shapes for e in self.examples)
            if not known:
                self.examples.append(example)
            if known or len(self.examples) >= FEWEST:
                self.template = kind(self.examples)
                self.told.clear()
            self.failed = len(self.examples) > _EXAMPLES
        except Exception:  # Untold, or an error, which the recorded call has in the user's line
            self.failed = True
        if self.failed:
            debug.say(f"calls of {name_of(build) or build} are recorded: no template computes them")
            self.examples.clear()
            self.template = None

    def made(self, call: _Called) -> list[Any] | None:
        """What the template makes of a call; None if it must be recorded."""
        arrays, shapes = call.arrays, call.shapes
        for _ in range(2):
            template = self.template
            if template is None:
                return None
            call.shared = {}
            forward: Template = template.forward if call.targets else template
            try:
                if shapes in self.told:
                    return forward(arrays, shapes, call.shared)
                forward.check(shapes)
                made = forward(arrays, shapes, call.shared)
                if call.targets:
                    template.check(shapes, made)
            except Untold:
                self.learn(call)
            except Exception:  # the recorded call has the better message
                return None
            else:
                if len(self.told) >= _REMEMBERED:
                    self.told.clear()
                self.told.add(shapes)
                return made
        return None


class Number(Handle):
    """A number of int64 that a call reads, as a draw its seed. It is a node where the call is
    recorded.

    make: of the value, the node in the present epoch.
    """

    dtype = int64

    def __init__(self, value: int, make: Callable[[int], Node]):
        self.value, self._make = value, make
        self._known: tuple[int, Node] | None = None

    @property
    def _node(self) -> Node:  # type: ignore[override]
        if self._known is None or self._known[0] != clock.number:
            self._known = clock.number, self._make(self.value)
        return self._known[1]

    @property
    def constant(self) -> Node:
        return constant(self.value, int64)


class _Called:
    """A call that is about to be computed.

    key: of its family. args: with PLACE for each operand, and without the last argument if it is a
    shape, which `sizes` has. operands: tensors, and numbers. arrays: their values. shapes: of
    these, and then `sizes`. targets: where their gradients go; empty if no gradient flows through
    the call. taping: whether it may. is_open: whether the operands may have gradients. shared: what
    composites among its ops leave for their derivatives.
    """

    __slots__ = (
        "args", "arrays", "build", "is_open", "key", "operands", "shapes", "shared", "sizes",
        "taping", "targets",
    )  # fmt: skip
    shapes: tuple[Any, ...]

    def __init__(self, build: Callable[..., Any], sizes: tuple[Any, ...] = ()):
        self.build, self.sizes = build, sizes
        self.key: list[Any] = [build]
        self.args: list[Any] = []
        self.operands: list[Any] = []
        self.arrays: list[Any] = []
        self.targets: Sequence[Any] = ()
        tracked = graph.grad_enabled()
        self.taping = clock.taping and tracked
        self.is_open = self.taping or not tracked
        self.shared: dict[Any, Any] = {}

    def example(self) -> tuple[Any, Callable[..., Any]]:
        """It as an example, and the template that such examples make."""
        operands = [
            leaf(i, Size(array.shape), each.dtype)
            for i, (each, array) in enumerate(zip(self.operands, self.arrays))
        ]
        with graph.grad_mode(bool(self.targets)):
            targets = self.targets or [None] * len(operands)
            tracked = [
                o if target is None else ops.variable(o, i)
                for i, (o, target) in enumerate(zip(operands, targets))
            ]
            given = iter(tracked)
            args = [next(given) if a is PLACE else a for a in self.args]
            made = rounded_once(self.build, [*args, *self.sizes])
        if self.targets:
            return Differentiated(operands, tracked, made, self.sizes), DifferentiatedTemplate
        return Example(operands, made, self.sizes), Template


def may_compute() -> bool:
    """Whether calls are made for their values alone, and nobody wants to see or time them."""
    return timed.tell is None and tiers.mode != tiers.FUSED and is_plain()


def computed(build: Callable[..., Any], args: Sequence[Any]) -> Any:
    """The results of a call, as a tensor or a tuple of tensors; None if it must be recorded."""
    if epoch.fallible or Node in map(type, args) or not may_compute():
        return None  # what reads the result makes the checks; a node is of this epoch
    if build in takes_sizes:
        *args, last = args
        call = _Called(build, (last,))
        call.key.append(_kinds(last))
    else:
        call = _Called(build)
    key = call.key
    try:
        for each in args:
            if isinstance(each, Handle):
                if not _add(call, each):
                    return None
            else:
                call.args.append(each)
                key.append(each)
    except Refused:
        return None
    return _found(call) if call.arrays else None


def computed_beside(build: Callable[..., Any], t: Any, value: Any, swapped: bool) -> Any:
    """The result of a call on a tensor and a Python number; None if it must be recorded."""
    if t.dtype in HALVES or not may_compute():
        return None
    token = key_of(value)
    call = _Called(build)
    try:
        if token is None or not _add(call, t):
            return None
        other = _constant(build, t.dtype, default_dtype(), token, value.__class__, value)
    except (OverflowError, ValueError, RuntimeError, Refused):  # the recorded call says what it is
        return None
    blind = is_blind(build)
    call.key += (swapped, other.dtype if blind else other)
    if blind:
        value = _array(other)
        place = 0 if swapped else 1
        call.operands.insert(place, other)
        call.arrays.insert(place, value)
        if call.targets:
            call.targets = (None, *call.targets) if swapped else (*call.targets, None)
        call.args = [PLACE, PLACE]
    else:
        call.args = [other, PLACE] if swapped else [PLACE, other]
    return _found(call)


def computed_between(build: Callable[..., Any], t: Any, *values: Any) -> Any:
    """The result of a call on a tensor and Python numbers, which its builder doesn't look at; None
    if it must be recorded."""
    if not isinstance(t, Handle) or t.dtype in HALVES or not may_compute():
        return None
    call = _Called(build)
    try:
        if not _add(call, t):
            return None
        for value in values:
            token = key_of(value)
            if token is None:
                return None
            other = _constant(build, t.dtype, default_dtype(), token, value.__class__, value)
            _put(call, other, _array(other), None, other.dtype)
    except (OverflowError, ValueError, RuntimeError, Refused):  # the recorded call says what it is
        return None
    return _found(call)


@functools.lru_cache(_REMEMBERED)
def _array(of: Node) -> np.ndarray:
    """The value of a constant, as an array."""
    return np.asarray(constant_value(of))


_GRADIENT = object()
"""Stands in a family's key before an operand that has a gradient."""


def _add(call: _Called, t: Any) -> bool:
    """Add a tensor to the operands of a call; False if it has no value that can be used."""
    if t.__class__ is Number:
        _put(call, t, np.asarray(t.value, np.int64), None, int64)
        return True
    array, taping = t._buffer, call.taping
    if (
        call.is_open
        and array.__class__ is np.ndarray
        and t._node is None
        and t._storage is None
        and t._shared is None
        and t._aval[2] == "cpu"
        and (t.__class__ is epoch.tensor_type or t.__class__ is epoch.parameter_type)
    ):  # the usual case of what follows
        target = (t._history or (t if t._requires_grad else None)) if taping else None
        dtype = t._aval[1]  # type: ignore[index]
    else:
        array, dtype = _value(t, taping), t.dtype
        if array is None:
            return False
        if taping and (t._storage or t)._shared is not None:
            array = array.copy()  # others may write to that memory
        target = target_of(t) if taping else None
    if array.size > MOST:
        return False
    if taping and epoch.inferred and (t._storage or t)._changes is epoch.untracked:
        return False  # a tensor of inference mode
    _put(call, t, array, target, dtype)
    return True


def _put(call: _Called, t: Any, array: np.ndarray, target: Any, dtype: DType) -> None:
    if target is not None:
        call.key.append(_GRADIENT)
        if not call.targets:
            call.targets = [None] * len(call.operands)
    if target is not None or call.targets:
        call.targets.append(target)  # type: ignore[attr-defined]
    call.key.append((dtype, _kinds(array.shape)))
    call.operands.append(t)
    call.arrays.append(array)
    call.args.append(PLACE)


def _kinds(shape: Sequence[int]) -> Any:
    """What families tell of sizes: how many they are, and which are 1, which broadcasts, or 0."""
    if 1 in shape or 0 in shape:
        return tuple([n if n < 2 else 2 for n in shape])
    return len(shape)


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
    if _is_tracked(input) and not (clock.taping and _may_rebind(input)):
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
        return not _is_tracked(t) and written(t, ..., made)
    return _may_rebind(t) and rebound(t, made)


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


def may_view(t: Any) -> bool:
    """Whether a view of `t`, which may have a gradient, needs no node until it is read."""
    state: Any = t if t._storage is None else t._storage
    if state._node is not None or state._buffer.__class__ is not np.ndarray:
        return False
    chain = t._chain
    if chain is not None and chain.multiple is not None and t._writes != t._storage._writes:
        return False  # the base was written to, which is an error
    if t._shared is not None or t._root is not None:
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


def _found(call: _Called) -> Any:
    if not novelty.lasts():
        return None
    arrays = call.arrays
    if call.build in joins:
        return _joined(call)
    place = tuple(call.key)
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
        family.learn(call)
        if family.template is None:
            return None
    call.shapes = shapes = (*[a.shape for a in arrays], *call.sizes)
    made = family.made(call)
    if made is None:
        return None
    template = family.template
    novelty.note((id(family), shapes))
    if call.targets:
        return _taped(call, template, made)
    if template.is_single:
        return tensor(made[0], template.dtypes[0])
    return tuple([tensor(a, d) for a, d in zip(made, template.dtypes)])


def _joined(call: _Called) -> Any:
    """Tensors joined along an axis, however many they are."""
    operands, arrays = call.operands, call.arrays
    axis, dtype = call.args[-1], operands[0].dtype
    if len(call.args) != len(arrays) + 1 or any([t.dtype is not dtype for t in operands]):
        return None
    if any([a.shape == (0,) for a in arrays]):
        return None  # PyTorch ignores empty vectors
    call.shapes = tuple([a.shape for a in arrays])
    template = Join(len(arrays), axis, joins[call.build], dtype)
    try:
        made = np.asarray(template.forward(arrays), order="C")
    except (ValueError, IndexError):  # the recorded call has the better message
        return None
    novelty.note((call.build, axis, call.shapes))
    return _taped(call, template, [made]) if call.targets else tensor(made, dtype)


_NUMBERS = (Node, Number)


def _taped(call: _Called, template: DifferentiatedTemplate | Join, made: list[Any]) -> Any:
    """The results of a call that gradients flow through."""
    tensors = [tensor(a, d) for a, d in zip(made, template.dtypes)]
    if template.seeds:
        operands = [
            each if each.__class__ in _NUMBERS else Operand(each, array, target)
            for each, array, target in zip(call.operands, call.arrays, call.targets)
        ]
        kept = template.kept(call.arrays, made)
        noted = Call(template, call.build, call.args, operands, kept, call.shapes, call.shared)
        note(noted, tensors)
    return tensors[0] if template.is_single else tuple(tensors)


def tensor(array: np.ndarray, dtype: DType) -> Any:
    t = wrapping.blank()
    t._buffer = array
    t._aval = (Size(array.shape), dtype, "cpu")
    return t


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
        return np.asarray(constant_value(t._node))
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
    return views.seen_in(state._buffer, t._chain)


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
