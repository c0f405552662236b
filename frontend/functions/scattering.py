"""Writes at positions: scatter, index_add, index_copy, index_fill, put and their reductions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from ..recording import Handle, record_fallible
from ..recording.builders import WIDEST, builder
from .arguments import into
from .call import public
from .fitting import filling
from .gathering import check_vector, elements
from .indexing import fit, positions
from .promotion import is_number, refuse, to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import Number


def _scatter(x: Node, dim: int, index: Node, src: Node, mode: str) -> Node:
    axis = normalize_axis(dim, x.rank)
    if 0 in index.shape:  # nothing is written, so PyTorch takes any rank
        if src.rank:
            _check_dtypes("scatter", x, src)
        return ops.clone(x)
    index = elements(index, x, axis)
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


@public(
    "scatter",
    _scatter,
    in_place=True,
    casts={"cuda": WIDEST},
    gradient=lambda args: f"ScatterBackward{int(is_number(args[3]))}",
)
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
    source = src if isinstance(src, Handle) else filling(value if src is None else src, input)
    return into(out, record_fallible(_scatter, input, int(dim), index, source, mode), cast=False)


def _scatter_add(x: Node, dim: int, index: Node, src: Node) -> Node:
    return _scatter(x, dim, index, src, "add")


@public("scatter_add", _scatter_add, in_place=True, casts={"cuda": WIDEST})
def scatter_add(
    input: Tensor, dim: int, index: Tensor, src: Tensor, *, out: Tensor | None = None
) -> Tensor:
    """A copy of `input` with src added at the places that `index` names."""
    return into(out, record_fallible(_scatter_add, input, int(dim), index, src), cast=False)


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
    return into(out, made, cast=False)


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
    _check_dtypes("scatter", x, src)
    if 0 in index.shape:
        return ops.clone(x)
    where = elements(index, x, axis)
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
    if reduce in ("amax", "amin"):
        refuse(f"reduce_{reduce}", x, dtypes.COMPLEX)
    if reduce == "mean":
        refuse("reduce_mean", x, dtypes.BOOL)
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
    divide = ops.div if x.dtype.is_differentiable else ops.floor_divide
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


def _at_rows(name: str, mode: str, failure: str, of_vectors: str) -> Callable[..., Node]:
    def build(x: Node, dim: int, index: Node, source: Node) -> Node:
        axis = normalize_axis(dim, x.rank)
        check_vector(name, index)
        _check_dtypes(name, x, source)
        index = ops.reshape(index, (-1,))
        shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
        _check_source(name, source, shape if x.rank else (), axis)
        base = x if x.rank else ops.reshape(x, (1,))
        kind = failure if x.rank > 1 else of_vectors
        where = positions(index, base.shape[axis], axis, kind)
        out = ops.scatter(base, fit(source, shape, x.dtype), where, axis, mode)
        return ops.reshape(out, x.shape)

    return build


_index_add = _at_rows("index_add", "add", "element", "row")
_index_copy = _at_rows("index_copy", "set", "position", "position")


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
    if alpha != 1:  # a factor of the elements' own dtype
        source = source * filling(alpha, source).to(source.dtype)
    return into(out, record_fallible(_index_add, input, int(dim), index, source), cast=False)


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
    warn("index_reduce() is in beta and the API may change at any time.", once=True)
    mode = _reduction("index_reduce", reduce, "prod mean amax amin")
    made = record_fallible(_index_reduce, input, int(dim), index, source, mode, bool(include_self))
    return into(out, made, cast=False)


@builder("index_reduce")
def _index_reduce(
    x: Node, dim: int, index: Node, source: Node, reduce: str, include_self: bool
) -> Node:
    axis = normalize_axis(dim, x.rank)
    if reduce == "mean":
        refuse("index_func_", x, dtypes.BOOL)
    check_vector("index_reduce", index)
    _check_dtypes("index_reduce", x, source)
    index = ops.reshape(index, (-1,))
    shape = (*x.shape[:axis], index.shape[0], *x.shape[axis + 1 :])
    _check_source("index_add", source, shape if x.rank else tuple(source.shape), axis)
    base = x if x.rank else ops.reshape(x, (1,))
    where = positions(index, base.shape[axis], axis, "row")

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
    return into(out, record_fallible(_index_copy, input, int(dim), index, source), cast=False)


@builder("index_fill", gradient=lambda args: f"IndexFillBackward{int(not is_number(args[3]))}")
def _index_fill(x: Node, dim: int, index: Node, value: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    check_vector("index_fill", index)
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
    given = value.dtype.is_complex if isinstance(value, Handle) else isinstance(value, complex)
    if given and not input.dtype.is_complex:
        raise RuntimeError(
            "index_fill_(): Converting complex Scalar to non-complex type is not supported"
            f"{at_user_line()}"
        )
    return record_fallible(_index_fill, input, int(dim), index, filling(value, input))
