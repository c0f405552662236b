"""x[...]: basic indices are views, advanced ones gather and scatter."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.failure import FAILURES, Failure
from tilewright.ir.location import at_user_line, user_location
from tilewright.ir.node import Node, format_location
from tilewright.ir.shape import broadcast

from .. import recording
from ..recording import (
    Handle,
    assign,
    at_once,
    cached_view,
    element,
    flushing,
    record_fallible,
    taped_writes,
    volatile,
)
from ..recording.builders import WIDEST, builder
from . import shapes
from .arguments import as_handle, into
from .call import public
from .data_sized import nonzero
from .fitting import fitting
from .from_data import from_buffer
from .masks import masked_filled
from .parts import bounds, part_of, select, slice_dim
from .promotion import (
    to,
)

if TYPE_CHECKING:
    from .._tensor import Tensor


def getitem(t: Tensor, key: Any) -> Tensor:
    """t[key]: ints, slices, None, ... and bool give views; tensors, arrays and lists copies."""
    if type(key) is int:
        part = element(t, (key,))
        return select(t, 0, key) if part is None else part
    if type(key) is tuple:
        part = element(t, key)
        if part is not None:
            return part
        parts = _plain(key)
        if parts is not None:
            return _viewed(t, *parts)
    if type(key) is slice and t.shape:
        part = _slice(t, 0, key)
        return shapes.alias(t) if part is t else part
    if isinstance(key, np.integer):
        return getitem(t, int(key))
    if key is None:
        return shapes.unsqueeze(t, 0)
    if recording.clock.volatile:
        made = volatile.picked(t, key)
        if made is not None:
            return made
    if (
        isinstance(key, Handle)
        and key.dim() > 0
        and key.dtype is not dtypes.uint8
        and _consumes(key) <= t.dim()
    ):
        return gathered(t, [(0, key)])
    base, advanced = _basic(t, key)
    if advanced:
        return gathered(base, advanced)
    return shapes.alias(t) if base is t else base


def _plain(key: tuple[Any, ...]) -> list[Any] | None:
    """The parts of a key as the cache of views takes them, if all are ints or tensors of one,
    slices of ints, None or an ellipsis: slices have no hash."""
    parts: list[Any] = []
    for part in key:
        kind = part.__class__
        if kind is slice:
            start, stop, step = part = part.start, part.stop, part.step
            if not (
                (start is None or start.__class__ is int)
                and (stop is None or stop.__class__ is int)
                and (step is None or step.__class__ is int)
            ):
                return None
        elif isinstance(part, Handle):
            if not _is_place(part):
                return None
            part = int(part.item())
        elif isinstance(part, np.integer):
            part = int(part)
        elif not (kind is int or part is None or part is Ellipsis):
            return None
        parts.append(part)
    return parts


@cached_view
def _viewed(t: Any, *parts: Any) -> Any:
    base = _by_parts(t, parts)
    return shapes.alias(t) if base is t else base


def _by_parts(t: Any, parts: Sequence[Any]) -> Any:
    """The view by the parts of a plain key."""
    many = parts.count(Ellipsis)
    rest = t.dim() - len(parts) + many
    if None in parts or rest < 0 or many > 1:
        return _basic(t, tuple([slice(*p) if type(p) is tuple else p for p in parts]))[0]
    at = parts.index(Ellipsis) if many else len(parts)
    return part_of(t, (*parts[:at], *[(None, None, None)] * rest, *parts[at + 1 :]))


def setitem(t: Tensor, key: Any, value: Any) -> None:
    """t[key] = value."""
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        raise TypeError(
            f"can't assign a {type(value).__name__} to a {t.type()}; make a tensor of it"
            f"{at_user_line()}"
        )
    # As in PyTorch, halves take what is infinite among them here.
    value = fitting(value, dtypes.float64 if t.dtype in dtypes.HALVES else t.dtype)
    if at_once.written(t, key, value):
        return
    if isinstance(key, np.integer):
        key = int(key)
    part = element(t, key if type(key) is tuple else (key,)) if isinstance(value, Handle) else None
    if part is not None and _is_written(part, value):
        part._storage._changes += 1
        return
    plain = _plain(key) if type(key) is tuple else None
    base, advanced = _basic(t, key) if plain is None else (_by_parts(t, plain), [])
    if not advanced:
        if _is_written(base, value):
            base._storage._changes += 1  # the version counts the write
            return
        value = as_handle(value, t)
        if volatile.wrote(base, value):
            return
        assign(base, recording.node_of(fit, value, tuple(base.shape), base.dtype))
        return
    axis, mask = advanced[0]
    is_number = not isinstance(value, Handle) or value.dim() == 0
    if len(advanced) == 1 and mask.dtype is dtypes.bool_ and is_number:
        _check_mask(base, axis, mask)
        mask = shapes.reshape(mask, (*mask.shape, *(1,) * (base.dim() - axis - mask.dim())))
        value = as_handle(value, t)
        assign(base, recording.node_of(masked_filled, base, _near(mask, base), value))
        return
    _check_written(base, advanced, value)
    permuted, indices, axis, _ = _prepare(base, advanced)
    value = as_handle(value, t)  # only now: reading a mask would compute a number on the host
    node = recording.fallible_node_of(_put, permuted, value, *indices, axis, "set")
    assign(permuted, node)
    recording.settle()  # so that op by op an error is raised here


def _check_written(t: Any, advanced: list[tuple[int, Any]], value: Any) -> None:
    """RuntimeError unless `value` is a number, or has the dtype of `t`, to which it is written.
    Masks are filled with one element of any dtype."""
    if not isinstance(value, Handle) or value.dtype is t.dtype or recording.clock.casts is not None:
        return  # autocast makes both one
    if value.numel() == 1 and all(index.dtype is dtypes.bool_ for _, index in advanced):
        return
    raise RuntimeError(
        "Index put requires the source and destination dtypes match, got "
        f"{t.dtype.kind} for the destination and {value.dtype.kind} for the source{at_user_line()}"
    )


def _is_written(place: Any, value: Any) -> bool:
    """Whether `value` is the very part of memory that it shall be written to: Python writes back
    what `x[i] += 1` has written in place."""
    return (
        isinstance(value, Handle)
        and value._storage is not None
        and value._storage is place._storage
        and value._chain is place._chain is not None
        and (taped_writes.may_write(place) or not (place.requires_grad or value.requires_grad))
        and not (place._chain.detaches or place._root is not None)
    )


@builder("copy_", gradient="CopySlices")
def fit(value: Node, shape: tuple[int, ...], dtype: dtypes.DType) -> Node:
    lead = value.rank - len(shape)
    if lead > 0 and all(s == 1 for s in value.shape[:lead]):
        value = ops.reshape(value, value.shape[lead:])
    return ops.expand(to(value, dtype), shape)


def _basic(t: Any, key: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """The view by the basic parts of `key`, and (axis of the view, index) for the others."""
    parts = [_array_like(p) for p in (key if _is_several(key) else [key])]
    used = sum(_consumes(p) for p in parts)
    if used > t.dim():
        raise IndexError(f"too many indices for tensor of dimension {t.dim()}{at_user_line()}")
    if not any(p is Ellipsis for p in parts):
        parts.append(Ellipsis)
    at = next(i for i, p in enumerate(parts) if p is Ellipsis)
    parts[at : at + 1] = [slice(None)] * (t.dim() - used)
    axis = 0
    advanced: list[tuple[int, Any]] = []
    for part in parts:
        if part is None:
            t = shapes.unsqueeze(t, axis)
            axis += 1
        elif isinstance(part, bool):
            t = shapes.unsqueeze(t, axis)
            advanced.append((axis, _tensor_of(np.array([part]))))
            axis += 1
        elif isinstance(part, slice):
            t = _slice(t, axis, part)
            axis += 1
        elif isinstance(part, Handle):
            if not _consumes(part):  # a mask of rank 0 adds a dimension
                t, part = shapes.unsqueeze(t, axis), shapes.unsqueeze(part, 0)
            advanced.append((axis, part))
            axis += _consumes(part)
        else:
            t = select(t, axis, part)
    return t, advanced


def _is_several(key: Any) -> bool:
    """Whether a key has parts: a tuple, or a short list of more than numbers (PyTorch's rule)."""
    if isinstance(key, tuple):
        return True
    if not isinstance(key, (list, range)) or len(key) >= 32 or not any(map(_is_no_number, key)):
        return False
    warnings.warn(
        "Using a non-tuple sequence for multidimensional indexing is deprecated; use x[tuple(seq)] "
        f"instead of x[seq]{at_user_line()}",
        stacklevel=2,
    )
    return True


def _is_no_number(part: Any) -> bool:
    several = (Handle, list, tuple, range, slice)
    return part is None or part is Ellipsis or isinstance(part, several) or np.ndim(part) > 0


def _array_like(part: Any) -> Any:
    """A part of a key as an int, a slice, a bool, None, an ellipsis or a tensor."""
    if part is None or part is Ellipsis or isinstance(part, (bool, slice)):
        return part
    if isinstance(part, Handle):
        if part.dtype is dtypes.uint8:
            warnings.warn(
                "indexing with dtype torch.uint8 is now deprecated, please use a dtype torch.bool "
                f"instead{at_user_line()}",
                stacklevel=2,
            )
            return part.bool()
        return int(part.item()) if _is_place(part) else part
    if hasattr(part, "__index__") and not (isinstance(part, np.ndarray) and part.ndim):
        return part.__index__()
    if isinstance(part, (list, tuple, np.ndarray, range)):
        array = np.asarray(part)
        if array.size == 0 and not isinstance(part, np.ndarray):
            array = array.astype(np.int64)
        return _array_like(_tensor_of(array))
    if isinstance(part, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(part).__name__}'{at_user_line()}")
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(part).__name__}){at_user_line()}"
    )


def _is_place(part: Any) -> bool:
    """Whether a tensor is one whole number, which may be read, and so stands for it in a key."""
    return (
        part.dim() == 0
        and part.dtype.category in (dtypes.SIGNED, dtypes.UNSIGNED)
        and part.dtype is not dtypes.uint8
        and not _is_example(part)
    )


def _is_example(part: Any) -> bool:
    """Whether `part` differs between the examples of a vmap, so that its value can't be read."""
    return flushing.is_refusing() and flushing.is_refusing(recording.resolve(part))


def _tensor_of(array: np.ndarray) -> Any:
    from .from_data import from_numpy

    return from_numpy(np.ascontiguousarray(array))


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Handle) and part.dtype is dtypes.bool_:
        return part.dim()
    return 1


def _slice(t: Any, axis: int, part: slice) -> Any:
    size = t.shape[axis]
    try:
        said = [
            b if b is None or type(b) is int else operator.index(b)
            for b in (part.start, part.stop, part.step)
        ]
    except TypeError:
        raise TypeError(
            "slice indices must be integers or None or have an __index__ method" + at_user_line()
        ) from None
    start, stop, step = bounds((said[0], said[1], said[2]), size)
    if start == 0 and stop >= size and step == 1:
        return t
    return slice_dim(t, axis, start, stop, step)


def _prepare(
    t: Any, advanced: list[tuple[int, Any]]
) -> tuple[Any, list[Any], int, list[int] | None]:
    """Bring the indexed axes together. Masks become positions, whose number is read."""
    axes: list[int] = []
    indices: list[Any] = []
    for axis, index in advanced:
        if index.dtype is dtypes.bool_:
            _check_mask(t, axis, index)
            for i, line in enumerate(nonzero(index, as_tuple=True)):
                axes.append(axis + i)
                indices.append(line.to(t.device))
        else:
            axes.append(axis)
            indices.append(_near(index, t))
    together = axes == list(range(axes[0], axes[0] + len(axes)))
    if together:
        return t, indices, axes[0], None
    rest = [i for i in range(t.dim()) if i not in axes]
    return shapes.permute(t, [*axes, *rest]), indices, 0, rest


def _check_mask(t: Any, axis: int, mask: Any) -> None:
    """IndexError unless the mask has the sizes of the dimensions from `axis` on."""
    for i, size in enumerate(mask.shape):
        if size != t.shape[axis + i]:
            raise IndexError(
                f"The shape of the mask {list(mask.shape)} at index {i} does not match the shape "
                f"of the indexed tensor {list(t.shape)} at index {axis + i}{at_user_line()}"
            )


def _near(index: Any, t: Any) -> Any:
    """Move an index on the host to the device of the tensor `t` that it indexes."""
    here = index._typed()[2] == "cpu" and t._typed()[2] != "cpu"
    return index.to(t.device) if here else index


_NOT_AN_INDEX = "tensors used as indices must be long, int, byte or bool tensors"


def positions(index: Node, size: int, axis: int, failure: str) -> Node:
    """int64 positions in dimension `axis`, of size `size`, checked and counted from the front.

    failure: the name of the error in ir/failure.py, which also tells whether negative positions are
        counted from the end.
    """
    if index.dtype.category not in (dtypes.SIGNED, dtypes.UNSIGNED):
        raise IndexError(_NOT_AN_INDEX + at_user_line())
    return ops.checked(to(index, dtypes.int64), size, axis, failure)


@builder("index", picks=0)
def _index(x: Node, *args: Any) -> Node:
    *indices, axis = args
    return ops.gather(x, *_positions(x, indices, axis), axis)


def _positions(x: Node, indices: Sequence[Node], axis: int) -> list[Node]:
    return [positions(i, x.shape[axis + k], axis + k, "index") for k, i in enumerate(indices)]


def gathered(t: Any, advanced: list[tuple[int, Any]], build: Any = _index) -> Any:
    """`t` at the advanced parts of a key: (axis, index). build: the builder, which gives the call
    its name."""
    if len(advanced) == 1:
        axis, index = advanced[0]
        if index.dtype is dtypes.bool_ and not flushing.is_refusing():
            _check_mask(t, axis, index)
            found = at_once.masked(t, axis, index)
            if found is not None:
                return found
        t, advanced = _merged(t, axis, index)
    permuted, indices, axis, _ = _prepare(t, advanced)
    if is_shared(t) and not any(i.requires_grad for i in indices):
        return picked(permuted, indices, axis)
    return record_fallible(build, permuted, *indices, axis)


def _merged(t: Any, axis: int, index: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """`t` and its index; a mask of several dimensions becomes one of one dimension."""
    count = index.dim()
    if index.dtype is dtypes.bool_ and count > 1:
        _check_mask(t, axis, index)
        shape = t.shape
        t = shapes.reshape(t, (*shape[:axis], index.numel(), *shape[axis + count :]))
        index = shapes.reshape(index, (-1,)) if index.numel() else index.new_zeros(0)
    return t, [(axis, index)]


def is_shared(t: Any) -> bool:
    """Whether reading `t` means copying it, because NumPy sees its memory."""
    state = t._storage or t
    shared, buffer = state._shared, state._buffer  # `released` counts on a name for it
    pending = state._node is not None or recording.clock.looking or t.requires_grad
    pending = pending or flushing.is_refusing()  # the positions may have no values
    return not pending and shared is not None and buffer is not None and not shared.released()


def picked(t: Any, indices: Sequence[Any], axis: int, failure: str = "index") -> Any:
    """t[..., *indices, ...] in one step, so that only the picked elements are copied."""
    array, at = t._array(), []
    for k, index in enumerate(indices):
        if index.dtype.category not in (dtypes.SIGNED, dtypes.UNSIGNED):
            raise IndexError(_NOT_AN_INDEX + at_user_line())
        at.append(index.detach().cpu()._array().astype(np.int64))
        _check_now(at[-1], array.shape[axis + k], axis + k, FAILURES[failure])
    picked = array[(*(slice(None),) * axis, *at)]
    return from_buffer(np.array(picked, copy=True, order="C"), t.dtype)


def _check_now(index: np.ndarray, size: int, axis: int, failure: Failure) -> None:
    first = -size if failure.wraps else 0
    wrong = index[(index < first) | (index >= size)]
    if wrong.size:
        value = int(wrong.flat[0])
        shown = value + size if value < 0 and failure.wraps else value
        raise failure.at(shown, axis, size, format_location(user_location()))


@builder("index_put")
def _put(x: Node, value: Node, *args: Any) -> Node:
    *indices, axis, mode = args
    where = _positions(x, indices, axis)
    shape = (*x.shape[:axis], *ops.indexed_shape(where), *x.shape[axis + len(where) :])
    try:
        value = fit(value, shape, x.dtype)
    except RuntimeError:
        raise RuntimeError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to "
            f"indexing result of shape {list(shape)}{at_user_line()}"
        ) from None
    return ops.scatter(x, value, *where, axis, mode)


def _index_put(x: Node, value: Node, *args: Any) -> Node:
    return _put(x, value, *args)


@public("index_put", _index_put, in_place=True, in_place_function=True, casts={"cuda": WIDEST})
def index_put(
    input: Tensor, indices: Sequence[Tensor], values: Tensor, accumulate: bool = False
) -> Tensor:
    """A copy of `input` with input[indices] = values (added if `accumulate`)."""
    for i, index in enumerate(indices):
        if not isinstance(index, Handle):
            raise TypeError(
                f"index_put: expected Tensors as indices, got {type(index).__name__} as number {i}"
                f"{at_user_line()}"
            )
    if not indices:
        raise RuntimeError(f"index_put: expected at least one index{at_user_line()}")
    base, advanced = _basic(input, tuple(indices))
    permuted, found, axis, _ = _prepare(base, advanced)
    return record_fallible(
        _index_put, permuted, as_handle(values, input), *found, axis, "add" if accumulate else "set"
    )


def _selected(x: Node, *args: Any) -> Node:
    return _index(x, *args)


@public("masked_select", _selected)
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` holds, 1-d (their number is data: the mask is read)."""
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(f"masked_select: expected BoolTensor for mask{at_user_line()}")
    shape = broadcast(input.shape, mask.shape)
    wide, mask = shapes.expand(input, shape), shapes.expand(mask, shape)
    found = gathered(wide, [(0, mask)], _selected) if shape else getitem(wide, mask)
    return into(out, found, cast=False, apart=(input, mask))


@public("masked_scatter", in_place=True)
def masked_scatter(input: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    """`input` with the first elements of `source`, in order, where `mask` holds."""
    if source.dtype is not input.dtype:
        raise RuntimeError(
            "masked_scatter: expected self and source to have same dtypes but got "
            f"{input.dtype} and {source.dtype}{at_user_line()}"
        )
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}"
            f"{at_user_line()}"
        )
    shape = broadcast(input.shape, mask.shape)
    result, mask = shapes.clone(shapes.expand(input, shape)), shapes.expand(mask, shape)
    count = int(mask.detach().sum().item())
    if source.numel() < count:
        raise RuntimeError(
            f"masked_scatter: source has {source.numel()} elements, which are fewer than the "
            f"{count} places where mask holds{at_user_line()}"
        )
    setitem(result, mask, shapes.reshape(source, -1)[:count])
    return result
