"""Copies on the host that are made at once instead of recorded.

A program that fills a tensor number by number, joins many small tensors that it has kept, or picks
elements by masks, would record another graph each time: other positions, other numbers, other
tensors twice among its operands. What waits for nothing and needs no gradient is copied by NumPy,
as PyTorch does it, and the graph begins with the result. Nothing is copied at once while somebody
looks at the calls.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import node as graph
from tilewright.ir import ops
from tilewright.ir.dtype import HALVES
from tilewright.ir.node import Node
from tilewright.ir.ops.generate import constant_value
from tilewright.ir.shape import shape_of
from tilewright.runtime import devices, tiers
from tilewright.runtime.baseline import timed
from tilewright.runtime.baseline.quiet import quietly

from . import epoch, views, wrapping
from .epoch import clock, mutated, windows
from .states import Handle, State

MANY = 8
"""The number of tensors from which on they are joined at once."""
SMALL = 1 << 12
"""The number of elements up to which a new tensor gets its memory at once. Larger ones of one
number are often folded into what reads them."""
MOST = 1 << 20
"""The number of elements up to which something is copied at once."""

_WIDE = (dtypes.float32, dtypes.float64)
_NUMBERS = (bool, int, float)
Places = tuple[tuple[Any, ...], tuple[Any, ...]]


def joined(tensors: Sequence[Any], axis: int, new_axis: bool) -> Any:
    """`tensors` one after another along `axis`, a new one if `new_axis`. None if they must be
    recorded, also where that is an error."""
    if len(tensors) < MANY or not is_plain():
        return None
    arrays: list[np.ndarray] = []
    for t in tensors:
        array = _at_rest(t)
        if array is None:
            return None
        arrays.append(array)
    first = arrays[0]
    if any(a.dtype != first.dtype or a.ndim != first.ndim for a in arrays):
        return None
    if sum(a.size for a in arrays) > MOST:
        return None
    try:
        made = np.stack(arrays, axis) if new_axis else np.concatenate(arrays, axis)
    except (ValueError, IndexError):  # the recorded call has a better message
        return None
    return _tensor(made, tensors[0].dtype)


def filled(shape: tuple[int, ...], value: int, dtype: Any, device: str) -> Any:
    """A small tensor of one number on the host, which is read or written next; None if it must be
    recorded."""
    if dtype.__class__ is not dtypes.DType or (shape and min(shape) < 0):
        return None
    if not _may_be_made(views.numel(shape), device):
        return None
    return _tensor(np.full(shape, value, dtype.np), dtype)


def counted(start: int, step: int, count: int, device: str) -> Any:
    """start, start + step, …: likewise a small int64 tensor."""
    if not _may_be_made(count, device) or abs(start) + count * abs(step) >= 1 << 62:
        return None
    return _tensor(np.arange(count) * step + start, dtypes.int64)


def _may_be_made(count: int, device: str) -> bool:
    return clock.volatile and count <= SMALL and device == "cpu" and is_plain()


def masked(t: Any, axis: int, mask: Any) -> Any:
    """The elements of `t` where a mask of its dimensions from `axis` on holds, as another graph
    would begin with each number of them. None if the call must be recorded."""
    if not is_plain() or mask._typed()[2] != "cpu":
        return None
    if type(t) is not epoch.tensor_type or is_tracked(t) or views.numel(t.shape) > MOST:
        return None
    places = mask.detach()._array()  # which computes what waits
    array = _at_rest(t)
    if array is None:
        return None
    return _tensor(array[(*[slice(None)] * axis, places)], t.dtype)


def _tensor(made: np.ndarray, dtype: dtypes.DType) -> Any:
    """A tensor with the values of an array that nobody else holds."""
    return wrapping.of_array(np.asarray(made, order="C"), (shape_of(made.shape), dtype, "cpu"))


def places(key: Any, value_of: Callable[[Any], np.ndarray | None]) -> Places | None:
    """(part, at), for which NumPy's array[part][at] is t[key]: the view by ints and slices, and
    what positions and masks pick of it. `at` is empty without any of these. None if the key has
    other parts, or a value isn't known. value_of: the value of a tensor, or None."""
    part: list[Any] = []
    at: list[Any] = []
    axis = end = 0  # the dimensions of the view so far, and where those that are picked end
    is_plain = True
    for each in key if key.__class__ is tuple else (key,):
        kind = each.__class__
        if kind is int:
            part.append(each)
        elif isinstance(each, np.integer):
            part.append(int(each))
        elif kind is slice:
            if not _goes_forward(each):
                return None
            part.append(each)
            axis += 1
        elif each is None or each is Ellipsis:
            part.append(each)
            is_plain = False
        else:
            array = _positions(each, value_of)
            if array is None:
                return None
            if not array.ndim:
                part.append(int(array))
                continue
            if not at:
                at += [slice(None)] * axis
            elif axis != end:  # what is picked comes first
                return None
            at.append(array)
            count = array.ndim if array.dtype == bool else 1
            part += [slice(None)] * count
            end = axis = axis + count
    return None if at and not is_plain else (tuple(part), tuple(at))


def _goes_forward(part: slice) -> bool:
    """Whether a slice means the same to NumPy: one of ints that goes forward."""
    start, stop, step = part.start, part.stop, part.step
    return (
        (start is None or start.__class__ is int)
        and (stop is None or stop.__class__ is int)
        and (step is None or (step.__class__ is int and step > 0))
    )


def _positions(part: Any, value_of: Callable[[Any], np.ndarray | None]) -> np.ndarray | None:
    """A part of a key that picks elements, as an array of ints or bools; None if it is no such
    part, or isn't known."""
    if isinstance(part, Handle):
        array = value_of(part)
    elif part.__class__ is list and part and all([p.__class__ is int for p in part]):
        return np.array(part)
    else:
        array = part if part.__class__ is np.ndarray and part.ndim else None
    if array is None or array.size > MOST:
        return None
    kind = array.dtype.kind
    return array if kind == "i" or (kind == "b" and array.ndim) else None


_UPDATES = {"add": np.add, "sub": np.subtract, "mul": np.multiply}
"""What NumPy computes with the same bits as a kernel."""


def updated(t: Any, name: str, value: Any) -> bool:
    """t += value, if it can be made at once."""
    by = _UPDATES.get(name)
    if by is None or isinstance(value, bool) or t.dtype is dtypes.bool_ or t.dtype.is_complex:
        return False
    return t.dtype not in HALVES and _is_changed_at_once(t) and written(t, ..., value, by)


def overwritten(t: Any, value: Any) -> bool:
    """t.copy_(value), if it can be made at once."""
    return t.dtype not in HALVES and _is_changed_at_once(t) and written(t, ..., value)


def _is_changed_at_once(t: Any) -> bool:
    """Whether `t` is a part of a memory that is changed part by part, as by `x[i] += 1` in a loop,
    or calls are computed at once."""
    storage = t._storage
    if clock.volatile:
        return True
    if storage is None or t._chain is None:
        return False
    whole = storage._aval[0] if storage._node is None else storage._node.shape
    return views.numel(t.shape) < views.numel(whole)


def written(t: Any, key: Any, value: Any, by: np.ufunc | None = None) -> bool:
    """t[key] = value, if it can be made at once. by: what computes the new value of the old one and
    `value`, for all of `t`."""
    if not is_plain() or not writes_values_alone(t):
        return False
    state: Any = t if t._storage is None else t._storage
    if isinstance(value, np.generic):
        value = value.item()
    source: Any = value
    if isinstance(value, Handle):
        source = None if value is t else _known(value)
        if source is None or source.dtype != t.dtype.np or source.size > MOST:
            return False
        if value._storage is state:
            source = source.copy()  # the memory may have no other reader
    elif type(value) not in _NUMBERS or not _holds(t.dtype, value):
        return False
    if key is not Ellipsis:
        found = places(key, _known)
        if found is None:
            return False
        key, at = found
    else:
        at = ()
    if state._node is not None and not fill(state):
        return False
    array = own(state)
    if array is None or (t._chain is not None and t._chain.repeats):
        return False
    seen = views.seen_in(array, t._chain)
    if seen is None:
        return False
    try:
        if at:
            seen, key = seen[key], at
        if isinstance(value, Handle) and source.ndim > seen[key].ndim:
            return False
        if by is None:
            seen[key] = source
        else:
            quietly(by, seen, source, seen)
    except (IndexError, ValueError):  # the recorded call has a better message
        return False
    if t._root is not None:
        t._root._writes += 1
    if t._chain is not None and t._chain.is_data:
        state._rewrites += 1
        return True
    state._changes += 1
    if state is not t:
        state._writes += 1
    return True


def writes_values_alone(t: Any) -> bool:
    """Whether a write to `t` is one of values alone: to what has no history, or to a leaf without
    grad mode, or through a detached view of one."""
    kind = type(t)
    if kind is not epoch.tensor_type and kind is not epoch.parameter_type:
        return False
    if t._root is not None and t._root.source() is not None:
        return False
    state = t if t._storage is None else t._storage
    if t._history is not None or state._history is not None:
        return False
    if epoch.inferred and state._changes is epoch.untracked:
        return False  # a tensor of inference mode
    if t._requires_grad:
        return not graph.grad_enabled()
    return not state._requires_grad or t._chain is None or t._chain.detaches


_host: Callable[[], Any] = functools.cache(lambda: devices.get("cpu"))


def is_plain() -> bool:
    """Whether calls are computed for their values alone, and no value is on its way from a
    device."""
    return clock.is_plain and (not _host().concurrent or _host().is_settled())


def may_compute() -> bool:
    """Whether calls are made for their values alone, and nobody wants to see or time them."""
    return (
        clock.is_plain
        and timed.tell is None
        and tiers.mode != tiers.FUSED
        and (not _host().concurrent or _host().is_settled())
    )


def is_tracked(t: Any) -> bool:
    """Whether gradients may flow through `t`."""
    return t._requires_grad or t._history is not None or t._root is not None


def _at_rest(t: Any) -> np.ndarray | None:
    """The array of a tensor on the host that has its value, and that nothing in this epoch has
    read. It must not be written to."""
    state: Any = t if t._storage is None else t._storage
    if t._node is not None or state._node is not None or not _is_value(t, state):
        return None
    if type(state._buffer) is not np.ndarray or state._aval[2] != "cpu":
        return None
    return views.seen_in(state._buffer, t._chain)


def _is_value(t: Any, state: Any) -> bool:
    """Whether no gradient flows through what a tensor is read for."""
    kind = type(t)
    if kind is not epoch.tensor_type and kind is not epoch.parameter_type:
        return False
    if not graph.grad_enabled():
        return True
    if t._requires_grad or t._history is not None:
        return False
    if t._root is not None and t._root.source() is not None:
        return False
    is_free = not (state._requires_grad or state._history is not None)
    return is_free or (t._chain is not None and t._chain.detaches)


def _known(t: Any) -> np.ndarray | None:
    """As `_at_rest`, also of what this epoch has read, and not written to."""
    state: Any = t if t._storage is None else t._storage
    if state._node is None:
        return _at_rest(t)
    if not is_leaf(state) or not _is_value(t, state) or type(state._buffer) is not np.ndarray:
        return None
    return views.seen_in(state._buffer, t._chain) if state._aval[2] == "cpu" else None


def is_leaf(state: Any) -> bool:
    """Whether this epoch has read the value of a state, and not written to it."""
    place = state._place
    if not 0 <= place < len(epoch.leaves):
        return False
    owner, node, _ = epoch.leaves[place]
    return owner is state and node is state._node


def _holds(dtype: dtypes.DType, value: bool | int | float) -> bool:
    """Whether NumPy writes a number into this dtype as PyTorch does."""
    if dtype in _WIDE:
        return type(value) is not int or abs(value) < 1 << 53
    if dtype is dtypes.bool_:
        return type(value) is bool
    if dtype.category in (dtypes.SIGNED, dtypes.UNSIGNED) and type(value) is not float:
        info = np.iinfo(dtype.np)
        return info.min <= value <= info.max
    return False


def fill(state: Any, is_written: bool = True) -> bool:
    """Give memory to a state whose value is one number everywhere, so far a node. is_written:
    whether it is about to be overwritten."""
    node: Node = state._node
    is_read = 0 <= state._place < len(epoch.leaves) and epoch.leaves[state._place][0] is state
    if is_read or views.numel(node.shape) > MOST or node.device not in (None, "cpu"):
        return False
    kinds = []
    inner = node
    while inner.op in (ops.expand_op, ops.cast):
        kinds.append(inner.dtype.np)
        inner = inner.operands[0]
    if inner.op is not ops.constant_op:
        return False
    number = np.asarray(constant_value(inner))
    for kind in reversed(kinds):
        number = number.astype(kind)
    if is_written:
        mutated.add(node)
    state._buffer = np.full(node.shape, number, node.dtype.np)
    state._aval = (shape_of(node.shape), node.dtype, "cpu")
    for v in getattr(state, "_views", ()):
        if v._node is not None:
            v._aval = (v._node.shape, v._node.dtype, v._node.device or "cpu")
            v._node = None
    if not isinstance(state, Handle):
        state._views.clear()
    state._node = None
    return True


def own(state: State) -> np.ndarray | None:
    """The memory of a state that nobody else reads, or that the user shares with NumPy."""
    buffer = state._buffer
    if type(buffer) is not np.ndarray or state._aval is None or state._aval[2] != "cpu":
        return None
    if not buffer.flags.writeable:
        return None
    # Three references: the state's, `buffer` and the argument; an array's, `base` and the argument.
    base = buffer.base
    alone = getrefcount(buffer) == 3 and (
        base is None
        or (base.__class__ is np.ndarray and base.base is None and getrefcount(base) == 3)
    )
    # The epoch reads copies of memory that NumPy has seen, or windows once no array is left.
    is_shared = state._shared is not None and not any(w is state for w in windows)
    return buffer if alone or is_shared else None
