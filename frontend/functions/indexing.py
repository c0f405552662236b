"""Indexing: basic (views), advanced (gather and scatter), and PyTorch's named forms of it."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.failure import FAILURES, Failure
from tilewright.ir.location import at_user_line, user_location
from tilewright.ir.node import Node, format_location
from tilewright.ir.shape import broadcast, normalize_axis

from .. import recording
from ..recording import Handle, assign, cached_view, flushing, record, record_fallible
from ..recording.builders import WIDEST, builder
from . import shapes
from .arguments import as_handle, into, truth
from .call import public
from .creation import from_buffer
from .data_sized import nonzero, repeated
from .parts import bounds, part_of, select, slice_dim
from .promotion import (
    promoted,
    to,
)
from .shapes import reshape

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number


def getitem(t: Tensor, key: Any) -> Tensor:
    """t[key]: ints, slices, None, ... and bool give views; tensors, arrays and lists copies."""
    if type(key) is int:
        return select(t, 0, key)
    if type(key) is tuple:
        parts = _plain(key)
        if parts is not None:
            return _viewed(t, *parts)
    if type(key) is slice and t.shape:
        part = _slice(t, 0, key)
        return shapes.alias(t) if part is t else part
    if (
        isinstance(key, Handle)
        and key.dim() > 0
        and key.dtype is not dtypes.uint8
        and _consumes(key) <= t.dim()
    ):
        return _gather(t, [(0, key)])
    base, advanced = _basic(t, key)
    if advanced:
        return _gather(base, advanced)
    return shapes.alias(t) if base is t else base


def _plain(key: tuple[Any, ...]) -> list[Any] | None:
    """The parts of a key as the cache of views takes them, if all are ints, slices of ints, None or
    an ellipsis: slices have no hash."""
    parts: list[Any] = []
    for part in key:
        if type(part) is slice:
            part = part.start, part.stop, part.step
            if not all(b is None or type(b) is int for b in part):
                return None
        elif not (type(part) is int or part is None or part is Ellipsis):
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
    plain = _plain(key) if type(key) is tuple else None
    base, advanced = _basic(t, key) if plain is None else (_by_parts(t, plain), [])
    if not advanced:
        value = as_handle(value, t)
        assign(base, recording.node_of(_fit, value, tuple(base.shape), base.dtype))
        return
    axis, mask = advanced[0]
    is_number = not isinstance(value, Handle) or value.dim() == 0
    if len(advanced) == 1 and mask.dtype is dtypes.bool_ and is_number:
        _check_mask(base, axis, mask)
        mask = shapes.reshape(mask, (*mask.shape, *(1,) * (base.dim() - axis - mask.dim())))
        value = as_handle(value, t)
        assign(base, recording.node_of(_masked_fill, base, _near(mask, base), value))
        return
    permuted, indices, axis, _ = _prepare(base, advanced)
    value = as_handle(value, t)  # only now: reading a mask would compute a number on the host
    node = recording.fallible_node_of(_put, permuted, value, *indices, axis, "set")
    assign(permuted, node)
    recording.settle()  # so that op by op an error is raised here


@builder("copy_", gradient="CopySlices")
def _fit(value: Node, shape: tuple[int, ...], dtype: dtypes.DType) -> Node:
    lead = value.rank - len(shape)
    if lead > 0 and all(s == 1 for s in value.shape[:lead]):
        value = ops.reshape(value, value.shape[lead:])
    return ops.expand(to(value, dtype), shape)


def _basic(t: Any, key: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """The view by the basic parts of `key`, and (axis of the view, index) for the others."""
    parts = list(key) if type(key) is tuple else [key]
    parts = [_array_like(p) for p in parts]
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
        if part.dim() == 0 and part.dtype.category in (dtypes.SIGNED, dtypes.UNSIGNED):
            return part if part.requires_grad or _is_example(part) else int(part.item())
        return part
    if hasattr(part, "__index__") and not (isinstance(part, np.ndarray) and part.ndim):
        return part.__index__()
    if isinstance(part, (list, tuple, np.ndarray, range)):
        array = np.asarray(part)
        if array.size == 0 and not isinstance(part, np.ndarray):
            array = array.astype(np.int64)
        return _array_like(_tensor_of(array))
    raise IndexError(
        "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
        f"indices (got {type(part).__name__}){at_user_line()}"
    )


def _is_example(part: Any) -> bool:
    """Whether `part` differs between the examples of a vmap, so that its value can't be read."""
    return flushing.is_refusing() and flushing.is_refusing(recording.resolve(part))


def _tensor_of(array: np.ndarray) -> Any:
    from .creation import from_numpy

    return from_numpy(np.ascontiguousarray(array))


def _consumes(part: Any) -> int:
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, Handle) and part.dtype is dtypes.bool_:
        return part.dim()
    return 1


def _slice(t: Any, axis: int, part: slice) -> Any:
    size = t.shape[axis]
    said = [
        b if b is None or type(b) is int else b.__index__()
        for b in (part.start, part.stop, part.step)
    ]
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
    here = index._meta()[2] == "cpu" and t._meta()[2] != "cpu"
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


@builder("index")
def _index(x: Node, *args: Any) -> Node:
    *indices, axis = args
    return ops.gather(x, *_positions(x, indices, axis), axis)


def _positions(x: Node, indices: Sequence[Node], axis: int) -> list[Node]:
    return [positions(i, x.shape[axis + k], axis + k, "index") for k, i in enumerate(indices)]


def _gather(t: Any, advanced: list[tuple[int, Any]]) -> Any:
    if len(advanced) == 1:
        t, advanced = _merged(t, *advanced[0])
    permuted, indices, axis, _ = _prepare(t, advanced)
    if _is_shared(t) and not any(i.requires_grad for i in indices):
        return _picked(permuted, indices, axis)
    return record_fallible(_index, permuted, *indices, axis)


def _merged(t: Any, axis: int, index: Any) -> tuple[Any, list[tuple[int, Any]]]:
    """`t` and its index; a mask of several dimensions becomes one of one dimension."""
    count = index.dim()
    if index.dtype is dtypes.bool_ and count > 1:
        _check_mask(t, axis, index)
        shape = t.shape
        t = shapes.reshape(t, (*shape[:axis], index.numel(), *shape[axis + count :]))
        index = shapes.reshape(index, (-1,)) if index.numel() else index.new_zeros(0)
    return t, [(axis, index)]


def _is_shared(t: Any) -> bool:
    """Whether reading `t` means copying it, because NumPy sees its memory."""
    state = t._storage or t
    shared, buffer = state._shared, state._buffer  # `released` counts on a name for it
    pending = state._node is not None or recording.clock.looking or t.requires_grad
    pending = pending or flushing.is_refusing()  # the positions may have no values
    return not pending and shared is not None and buffer is not None and not shared.released()


def _picked(t: Any, indices: Sequence[Any], axis: int, failure: str = "index") -> Any:
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
    placed = broadcast(*(i.shape for i in where))
    shape = (*x.shape[:axis], *placed, *x.shape[axis + len(where) :])
    return ops.scatter(x, _fit(value, shape, x.dtype), *where, axis, mode)


# ---- named forms -----------------------------------------------------------------------------


def _index_select(x: Node, dim: int, index: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    _check_vector("index_select", index)
    _check_dtype(index)
    if not x.rank:
        return ops.reshape(_index_select(ops.reshape(x, (1,)), 0, index), ())
    at = positions(ops.reshape(index, (-1,)), x.shape[axis], axis, "row")
    return ops.gather(x, at, axis)


def _check_dtype(index: Node) -> None:
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(
            f"Expected dtype int32/int64 for index, got {index.dtype}{at_user_line()}"
        )


def _check_vector(name: str, index: Node) -> None:
    if index.rank > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector{at_user_line()}")


@public("index_select", _index_select)
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices `index` (1-d) of dimension `dim`."""
    if input.dim() and index.dim() == 1 and _is_shared(input):
        return into(out, _picked(input, [index], normalize_axis(int(dim), input.dim()), "row"))
    return into(out, record_fallible(_index_select, input, int(dim), index), cast=False)


def _gather_dim(x: Node, dim: int, index: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    if 0 in index.shape:  # nothing is read, so PyTorch takes any rank
        return ops.reshape(ops.slice_axis(ops.reshape(x, (-1,)), 0, 0, 0), index.shape)
    return ops.take_along(x, _elements(index, x, axis), axis)


def _elements(index: Node, x: Node, axis: int) -> Node:
    """Checked positions along `axis`, each of which picks one element of `x`. A number counts as a
    vector of one element."""
    if 0 in index.shape:  # nothing is read, so PyTorch takes any dtype
        index = to(index, dtypes.int64)
    _check_dtype(index)
    if max(index.rank, 1) != max(x.rank, 1):
        raise RuntimeError(
            f"Index tensor must have the same number of dimensions as input tensor{at_user_line()}"
        )
    sizes = zip(index.shape, x.shape)  # not strict: a number is as good as a vector
    if 0 not in index.shape and any(i > n for d, (i, n) in enumerate(sizes) if d != axis):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than self {list(x.shape)} apart "
            f"from dimension {axis}{at_user_line()}"
        )
    return positions(index, x.shape[axis] if x.rank else 1, axis, "element")


@public("gather", _gather_dim)
def gather(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] (for dim 1)."""
    return into(out, record_fallible(_gather_dim, input, int(dim), index), cast=False)


@public("take_along_dim")
def take_along_dim(
    input: Tensor, indices: Tensor, dim: int | None = None, *, out: Tensor | None = None
) -> Tensor:
    """`gather` along `dim`, with the other dimensions broadcast; without `dim`, `gather` on the
    flattened tensors."""
    if dim is None:
        input, dim, indices = shapes.reshape(input, -1), 0, shapes.reshape(indices, -1)
    if indices.dtype is not dtypes.int64:
        raise RuntimeError(
            f"torch.take_along_dim(): dtype of indices should be Long but got {indices.dtype}"
            f"{at_user_line()}"
        )
    if indices.dim() != input.dim():
        raise RuntimeError(
            "torch.take_along_dim(): input and indices should have the same number of dimensions, "
            f"but got {input.dim()} dimensions for input, and {indices.dim()} dimensions for "
            f"indices{at_user_line()}"
        )
    if not input.dim():
        return into(out, record(_take_along, input, dim, indices))
    axis = normalize_axis(dim, input.dim())

    def beside(t: Any, size: int) -> tuple[int, ...]:
        return (*t.shape[:axis], size, *t.shape[axis + 1 :])

    shape = list(broadcast(beside(input, 1), beside(indices, 1)))
    shape[axis] = input.shape[axis]
    source = shapes.expand(input, shape)
    shape[axis] = indices.shape[axis]
    return into(out, record(_take_along, source, axis, shapes.expand(indices, shape)))


@builder("take_along_dim")
def _take_along(x: Node, dim: int, index: Node) -> Node:
    """Gather at positions modulo the size, as PyTorch does: none is out of range."""
    size = x.shape[normalize_axis(dim, x.rank)] if x.rank else 1
    return _gather_dim(x, dim, ops.remainder(index, ops.full_like(index, max(size, 1))))


@public("take")
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements of the flattened input."""
    return into(out, getitem(shapes.reshape(input, -1), index), cast=False)


def _scatter(x: Node, dim: int, index: Node, src: Node, mode: str) -> Node:
    axis = normalize_axis(dim, x.rank)
    index = _elements(index, x, axis)
    if src.rank == 0:
        src = ops.expand(to(src, x.dtype), index.shape)
    if src.rank:
        _check_covers(index, src)
        src = ops.slice_(src, [0] * src.rank, index.shape, [1] * src.rank)
    _check_dtypes("scatter", x, src)
    return ops.put_along(x, src, index, axis, mode)


_REDUCTIONS = {
    "sum": "add",
    "add": "add",
    "prod": "mul",
    "multiply": "mul",
    "amax": "max",
    "amin": "min",
}


@public("scatter", _scatter, in_place=True, casts={"cuda": WIDEST})
def scatter(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Number | Tensor | None = None,
    *,
    value: Number | Tensor | None = None,
    reduce: str | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` with out[i][index[i][j]] = src[i][j] (for dim 1)."""
    mode = "set"
    if reduce is not None:
        mode = _REDUCTIONS[_reduction("scatter", reduce, "add multiply sum prod amax amin")]
    source = as_handle(value if src is None else src, input)
    return into(out, record_fallible(_scatter, input, int(dim), index, source, mode))


@public("scatter_add", in_place=True)
def scatter_add(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """A copy of `input` with src added at the places that `index` names."""
    return into(out, record_fallible(_scatter, input, int(dim), index, src, "add"))


@public("scatter_reduce", in_place=True)
def scatter_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    src: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """As `scatter`, but "sum", "prod", "mean", "amax" or "amin" combines elements that meet at a
    place; with those of `input`, if `include_self`."""
    mode = _reduction("scatter_reduce", reduce, "sum prod mean amax amin")
    made = record_fallible(_scatter_reduce, input, int(dim), index, src, mode, bool(include_self))
    return into(out, made)


def _reduction(name: str, given: Any, known: str) -> str:
    if given not in known.split():
        raise RuntimeError(
            f"{name}: reduce argument must be one of {', '.join(known.split())}, got {given!r}"
            f"{at_user_line()}"
        )
    return str(given)


@builder("scatter_reduce")
def _scatter_reduce(
    x: Node, dim: int, index: Node, src: Node, reduce: str, include_self: bool
) -> Node:
    axis = normalize_axis(dim, x.rank)
    where = _elements(index, x, axis)
    _check_dtypes("scatter", x, src)
    if src.rank:
        _check_covers(index, src)
        src = ops.slice_(src, [0] * src.rank, index.shape, [1] * src.rank)

    def put(base: Node, values: Node, mode: str) -> Node:
        return ops.put_along(base, values, where, axis, mode)

    return _combined(put, x, src, reduce, include_self)


def _combined(
    put: Callable[[Node, Node, str], Node], x: Node, src: Node, reduce: str, include_self: bool
) -> Node:
    """x with the reductions of `src` at the places that `put` writes to."""
    mode = {"mean": "add", **_REDUCTIONS}[reduce]
    base, count = x, None
    if reduce == "mean" or not include_self:
        kind = dtypes.int64
        count = put(ops.cast(ops.zeros_like(x), kind), ops.cast(ops.full_like(src, 1), kind), "add")
    if count is not None and not include_self:
        first = ops.expand(ops.constant(_start(mode, x.dtype), x.dtype, x.device), x.shape)
        base = ops.where(count > 0, first, x)
    result = put(base, src, mode)
    if reduce != "mean" or count is None:
        return result
    many = count + 1 if include_self else ops.maximum(count, ops.full_like(count, 1))
    divide = ops.div if x.dtype.is_floating_point else ops.floor_divide
    return divide(result, to(many, x.dtype))


def _start(mode: str, dtype: dtypes.DType) -> Any:
    """The value that changes nothing that it is combined with."""
    if mode in ("add", "mul"):
        return int(mode == "mul")
    if dtype.is_floating_point:
        return -np.inf if mode == "max" else np.inf
    if dtype is dtypes.bool_:
        return mode == "min"
    limits = np.iinfo(dtype.np)
    return int(limits.min if mode == "max" else limits.max)


def _check_dtypes(name: str, x: Node, src: Node) -> None:
    if src.dtype is not x.dtype:
        raise RuntimeError(
            f"{name}(): Expected self.dtype to be equal to src.dtype, got {x.dtype} and "
            f"{src.dtype}{at_user_line()}"
        )


def _check_covers(index: Node, src: Node) -> None:
    """RuntimeError unless there is an element of `src` for each one of `index`."""
    if 0 in index.shape:
        return
    if index.rank != src.rank or any(i > n for i, n in zip(index.shape, src.shape)):
        raise RuntimeError(
            f"Expected index {list(index.shape)} to be no larger than src {list(src.shape)}"
            f"{at_user_line()}"
        )


def _check_source(name: str, source: Node, shape: tuple[int, ...], axis: int) -> None:
    """Raise unless `source` is a number to fill with, or has the replaced shape. A copy takes a
    number for a vector of one element."""
    if name == "index_fill":
        if source.rank:
            raise RuntimeError(
                "index_fill_ only supports a 0-dimensional value tensor, but got tensor with "
                f"{source.rank} dimension(s).{at_user_line()}"
            )
        return
    given: tuple[int, ...] = tuple(source.shape)
    if name == "index_copy":
        given, shape = given or (1,), shape or (1,)
    if given != shape:
        counted = len(given) == len(shape) and given[axis] == shape[axis]
        kind = RuntimeError if counted or name == "index_add" else IndexError
        raise kind(
            f"{name}_(): expected a source of shape {list(shape)}, got {list(source.shape)}"
            f"{at_user_line()}"
        )


def _at_rows(name: str, mode: str, failure: str) -> Callable[..., Node]:
    def build(x: Node, dim: int, index: Node, source: Node) -> Node:
        axis = normalize_axis(dim, x.rank)
        _check_vector(name, index)
        index = ops.reshape(index, (-1,))
        shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
        _check_source(name, source, shape if x.rank else (), axis)
        base = x if x.rank else ops.reshape(x, (1,))
        where = positions(index, base.shape[axis], axis, failure)
        out = ops.scatter(base, _fit(source, shape, x.dtype), where, axis, mode)
        return ops.reshape(out, x.shape)

    return build


_index_add = _at_rows("index_add", "add", "element")
_index_copy = _at_rows("index_copy", "set", "position")


@public("index_add", _index_add, in_place=True)
def index_add(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    *,
    alpha: float = 1,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` with alpha * source added to the slices `index` of `dim`."""
    if alpha != 1:
        source = source * alpha
    return into(out, record_fallible(_index_add, input, int(dim), index, source))


@public("index_reduce", in_place=True)
def index_reduce(
    input: Tensor,
    dim: int,
    index: Tensor,
    source: Tensor,
    reduce: str,
    *,
    include_self: bool = True,
    out: Tensor | None = None,
) -> Tensor:
    """A copy of `input` whose slices `index` of `dim` are combined with those of `source` by
    "prod", "mean", "amax" or "amin"; without their old values, if not `include_self`."""
    mode = _reduction("index_reduce", reduce, "prod mean amax amin")
    made = record_fallible(_index_reduce, input, int(dim), index, source, mode, bool(include_self))
    return into(out, made)


@builder("index_reduce")
def _index_reduce(
    x: Node, dim: int, index: Node, source: Node, reduce: str, include_self: bool
) -> Node:
    axis = normalize_axis(dim, x.rank)
    _check_vector("index_reduce", index)
    _check_dtypes("index_reduce", x, source)
    index = ops.reshape(index, (-1,))
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    _check_source("index_add", source, shape if x.rank else tuple(source.shape), axis)
    base = x if x.rank else ops.reshape(x, (1,))
    where = positions(index, base.shape[axis], axis, "element")

    def put(base: Node, values: Node, mode: str) -> Node:
        return ops.scatter(base, values, where, axis, mode)

    made = _combined(put, base, ops.reshape(source, shape), reduce, include_self)
    return ops.reshape(made, x.shape)


@public("put", in_place=True)
def put(input: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    """A copy of `input` with the elements of `source` at the positions `index` of the flattened
    tensor; added, if `accumulate`."""
    return record_fallible(_put_flat, input, index, source, bool(accumulate))


@builder("put")
def _put_flat(x: Node, index: Node, source: Node, accumulate: bool) -> Node:
    if index.dtype is not dtypes.int64:
        raise RuntimeError(
            f"put_(): Expected a long tensor for index, but got {index.dtype}{at_user_line()}"
        )
    if source.dtype is not x.dtype:
        raise RuntimeError(
            f"put_(): self and source expected to have the same dtype, but got self.dtype = "
            f"{x.dtype} and source.dtype = {source.dtype}{at_user_line()}"
        )
    if math.prod(source.shape) != math.prod(index.shape):
        raise RuntimeError(
            "put_(): Expected source and index to have the same number of elements, but got "
            f"source.numel() = {math.prod(source.shape)}, index.numel() = "
            f"{math.prod(index.shape)}{at_user_line()}"
        )
    line = ops.reshape(x, (-1,))
    at = positions(ops.reshape(index, (-1,)), line.shape[0], 0, "index")
    made = ops.scatter(line, ops.reshape(source, (-1,)), at, 0, "add" if accumulate else "set")
    return ops.reshape(made, x.shape)


@public("index_copy", _index_copy, in_place=True, casts={"cpu": WIDEST})
def index_copy(
    input: Tensor, dim: int, index: Tensor, source: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """A copy of `input` with the slices `index` of `dim` replaced."""
    return into(out, record_fallible(_index_copy, input, int(dim), index, source))


@builder("index_fill")
def _index_fill(x: Node, dim: int, index: Node, value: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    _check_vector("index_fill", index)
    _check_source("index_fill", value, (), axis)
    size = x.shape[axis] if x.rank else 1
    at = positions(ops.reshape(index, (-1,)), size, axis, "index")
    # A row that is named twice is filled once, so it counts once in the gradient of `value`.
    line = ops.constant(False, dtypes.bool_, x.device)
    yes = ops.expand(ops.constant(True, dtypes.bool_, x.device), at.shape)
    named = ops.scatter(ops.expand(line, (size,)), yes, at, 0, "set")
    beside = [size if i == axis else 1 for i in range(x.rank)]
    named = ops.expand(ops.reshape(named, beside), x.shape)
    return ops.where(named, ops.expand(to(value, x.dtype), x.shape), x)


@public("index_fill", in_place=True)
def index_fill(input: Tensor, dim: int, index: Tensor, value: Number | Tensor) -> Tensor:
    return record_fallible(_index_fill, input, int(dim), index, as_handle(value, input))


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
    base, advanced = _basic(input, tuple(indices))
    permuted, found, axis, _ = _prepare(base, advanced)
    return record_fallible(
        _index_put, permuted, as_handle(values, input), *found, axis, "add" if accumulate else "set"
    )


def _masked_fill(x: Node, mask: Node, value: Node) -> Node:
    if mask.dtype is not dtypes.bool_:
        raise RuntimeError(
            "masked_fill_ only supports boolean masks, but got mask with dtype "
            f"{mask.dtype}{at_user_line()}"
        )
    if value.rank:
        raise RuntimeError(
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with "
            f"{value.rank} dimension(s).{at_user_line()}"
        )
    shape = broadcast(x.shape, mask.shape)
    return ops.where(
        ops.expand(mask, shape), ops.expand(to(value, x.dtype), shape), ops.expand(x, shape)
    )


@public("masked_fill", _masked_fill, in_place=True)
def masked_fill(input: Tensor, mask: Tensor, value: Number | Tensor) -> Tensor:
    """`input` with `value` where `mask` holds."""
    return record(_masked_fill, input, mask, as_handle(value, input))


@public("masked_select")
def masked_select(input: Tensor, mask: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The elements where `mask` holds, 1-d (their number is data: the mask is read)."""
    shape = broadcast(input.shape, mask.shape)
    found = getitem(shapes.expand(input, shape), shapes.expand(mask, shape))
    return into(out, found, cast=False)


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


def _where(condition: Node, a: Node, b: Node) -> Node:
    if condition.dtype not in (dtypes.bool_, dtypes.uint8):
        raise RuntimeError(
            "where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}{at_user_line()}"
        )
    a, b = promoted(a, b)
    return ops.where(truth(condition), a, b)


def _where_of(self: Tensor, condition: Tensor, other: Number | Tensor) -> Tensor:
    return where(condition, self, other)


@overload
def where(
    condition: Tensor, input: Number | Tensor, other: Number | Tensor, *, out: Tensor | None = None
) -> Tensor: ...


@overload
def where(condition: Tensor) -> tuple[Tensor, ...]: ...


@public("where", _where, method=_where_of)
def where(
    condition: Tensor,
    input: Number | Tensor | None = None,
    other: Number | Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Any:
    """`input` where `condition` holds, else `other`; with one argument, `nonzero` as a tuple."""
    if input is None and other is None:
        return nonzero(condition, as_tuple=True)
    like = input if isinstance(input, Handle) else other if isinstance(other, Handle) else None
    return into(out, record(_where, condition, as_handle(input, like), as_handle(other, like)))


def _repeat_interleave(x: Node, times: int, axis: int) -> Node:
    wide = (*x.shape[: axis + 1], times, *x.shape[axis + 1 :])
    spread = ops.expand(ops.unsqueeze(x, axis + 1), wide)
    return ops.reshape(spread, (*x.shape[:axis], x.shape[axis] * times, *x.shape[axis + 1 :]))


@public("repeat_interleave", _repeat_interleave)
def repeat_interleave(
    input: Tensor,
    repeats: int | Tensor | None = None,
    dim: int | None = None,
    *,
    output_size: int | None = None,
) -> Tensor:
    """Each element along `dim` repeated. `repeats` is one number, or a tensor of one per element.

    output_size: the sum of `repeats`; if it isn't given, its value is read. Called with `input`
    only, `input` holds the repeats, and its positions are repeated.
    """
    if repeats is None:
        return repeated(input, output_size)
    if dim is None:
        input, dim = reshape(input, -1), 0
    axis = normalize_axis(dim, input.dim())
    if isinstance(repeats, int):
        size = input.shape[axis] * repeats
        if output_size not in (None, size):
            raise RuntimeError(
                f"repeat_interleave: Invalid output_size, expected {size} but got {output_size}"
                f"{at_user_line()}"
            )
        return record(_repeat_interleave, input, repeats, axis)
    counts = repeats.detach().expand(input.shape[axis])
    return index_select(input, axis, repeated(counts, output_size).to(input.device))
