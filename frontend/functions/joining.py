"""Rearrangements that are copies: joins, repetition, reversal, triangles and diagonals."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from ..recording import Handle, at_once, named_dtype, record
from ..recording.builders import WIDEST, builder, joins
from .arguments import into, listed, need_tensor, sizes
from .call import public
from .parts import tensor_split
from .promotion import can_cast, result_dtype, to
from .shapes import expand, flatten, reshape, transpose, unsqueeze
from .spellings import also_named

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import DeviceLike

# ---- joins -----------------------------------------------------------------------------------


def _cat(*args: Any) -> Node:
    *parts, dim = args
    dtype = result_dtype(*parts)
    # PyTorch ignores empty 1-d tensors, whatever the others' rank.
    kept = [p for p in parts if p.shape != (0,)]
    if not kept:
        return to(parts[0], dtype)
    return ops.cat([to(p, dtype) for p in kept], normalize_axis(dim, kept[0].rank))


class _NoTensors(RuntimeError, ValueError):
    """PyTorch's class for an empty list depends on its version."""


def _several(name: str, tensors: Any) -> tuple[Any, ...]:
    if isinstance(tensors, Handle):
        raise TypeError(
            f"{name}(): argument 'tensors' (position 1) must be tuple of Tensors, not Tensor"
            f"{at_user_line()}"
        )
    tensors = tuple(tensors)
    for i, each in enumerate(tensors):
        if not isinstance(each, Handle):
            raise TypeError(
                f"{name}(): expected Tensor as element {i}, but got {type(each).__name__}"
                f"{at_user_line()}"
            )
    return tensors


@public("cat", _cat, method=False, aliases=("concat", "concatenate"), casts=WIDEST)
def cat(
    tensors: Sequence[Tensor], dim: int = 0, *, axis: int | None = None, out: Tensor | None = None
) -> Tensor:
    """`tensors` one after another along `dim` (or `axis`)."""
    dim = operator.index(dim if axis is None else axis)
    tensors = _several("cat", tensors)
    if not tensors:
        raise _NoTensors(f"torch.cat(): expected a non-empty list of Tensors{at_user_line()}")
    for x in tensors:
        if not x.dim():
            raise RuntimeError(f"zero-dimensional tensor cannot be concatenated{at_user_line()}")
    made = at_once.joined(tensors, dim, new_axis=False) if out is None else None
    if made is not None:
        return made
    return _into(out, record(_cat, *tensors, dim), tensors)


def _into(out: Any, joined: Tensor, apart: Sequence[Tensor] = ()) -> Tensor:
    """`joined`, written to `out` if one was given."""
    if out is not None and not can_cast(joined.dtype, out.dtype):
        raise TypeError(
            "torch.cat(): input types can't be cast to the desired output type "
            f"{out.dtype}{at_user_line()}"
        )
    made: Tensor = into(out, joined, apart=apart)
    return made


def _stack(*args: Any) -> Node:
    *parts, dim = args
    dtype = result_dtype(*parts)
    axis = normalize_axis(dim, parts[0].rank + 1)
    for i, part in enumerate(parts):
        if part.shape != parts[0].shape:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {list(parts[0].shape)} at "
                f"entry 0 and {list(part.shape)} at entry {i}{at_user_line()}"
            )
    return ops.cat([ops.unsqueeze(to(p, dtype), axis) for p in parts], axis)


@public("stack", _stack, method=False, casts=WIDEST)
def stack(tensors: Sequence[Tensor], dim: int = 0, *, out: Tensor | None = None) -> Tensor:
    """`tensors` of one shape along a new dimension `dim`."""
    tensors = _several("stack", tensors)
    if not tensors:
        raise RuntimeError(f"stack expects a non-empty TensorList{at_user_line()}")
    dim = operator.index(dim)
    made = at_once.joined(tensors, dim, new_axis=True) if out is None else None
    if made is not None:
        return made
    return _into(out, record(_stack, *tensors, dim), tensors)


joins.update({_cat: False, _stack: True})


@public("hstack", method=False)
def hstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    parts = [_line(x) for x in _several("hstack", tensors)]
    return _into(out, cat(parts, 0 if not parts or parts[0].dim() == 1 else 1))


@public("vstack", method=False, aliases=("row_stack",))
def vstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    return _into(out, cat([_plane(x) for x in _several("vstack", tensors)], 0))


def _each(function: Callable[[Any], Any], tensors: tuple[Any, ...]) -> Any:
    """The function of a tensor; of several or of a list of tensors, a tuple."""
    if len(tensors) == 1:
        (only,) = tensors
        if isinstance(only, Handle):
            return function(only)
        tensors = tuple(only)
    return tuple([function(each) for each in tensors])


@public("atleast_1d", method=False)
def atleast_1d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least 1 dimension: one, or a tuple of several."""
    return _each(_line, tensors)


@public("atleast_2d", method=False)
def atleast_2d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least 2 dimensions: vectors become rows."""
    return _each(_plane, tensors)


@public("atleast_3d", method=False)
def atleast_3d(*tensors: Tensor | Sequence[Tensor]) -> Any:
    """Tensors with at least 3 dimensions: vectors become rows, matrices get a last dimension."""
    return _each(_volume, tensors)


def _line(x: Any) -> Any:
    return x if x.dim() else reshape(x, 1)


def _plane(x: Any) -> Any:
    x = _line(x)
    return unsqueeze(x, 0) if x.dim() == 1 else x


def _volume(x: Any) -> Any:
    x = _plane(x)
    return unsqueeze(x, -1) if x.dim() == 2 else x


def _flip(x: Node, dims: tuple[int, ...]) -> Node:
    axes = tuple(normalize_axis(d, x.rank) for d in dims)
    if len(set(axes)) != len(axes):
        raise RuntimeError(
            f"flip: a dim appears multiple times in the list of dims {dims}{at_user_line()}"
        )
    return ops.flip(x, axes)


@public("flip", _flip)
def flip(
    input: Tensor, *args: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    """The order reversed along `dims` (a copy, as in PyTorch); TypeError without them."""
    return record(_flip, input, sizes(args, dims, "flip", "dims"))


@public("fliplr")
def fliplr(input: Tensor) -> Tensor:
    if input.dim() < 2:
        raise RuntimeError(f"Input must be >= 2-d.{at_user_line()}")
    return flip(input, 1)


@public("flipud")
def flipud(input: Tensor) -> Tensor:
    if input.dim() < 1:
        raise RuntimeError(f"Input must be >= 1-d.{at_user_line()}")
    return flip(input, 0)


def _roll(x: Node, shifts: tuple[int, ...], dims: tuple[int, ...]) -> Node:
    if not dims:
        return ops.reshape(_roll(ops.reshape(x, (-1,)), shifts, (0,)), x.shape)
    if len(shifts) != len(dims):
        raise RuntimeError(
            f"shifts and dimensions must align. shifts: {len(shifts)}, dims: {len(dims)}"
            f"{at_user_line()}"
        )
    for shift, dim in zip(shifts, dims, strict=True):
        axis = normalize_axis(dim, x.rank)
        size = x.shape[axis]
        at = (-shift) % size if size else 0
        if at:
            x = ops.cat([ops.slice_axis(x, axis, at, size), ops.slice_axis(x, axis, 0, at)], axis)
    return x


@public("roll", _roll)
def roll(
    input: Tensor, shifts: int | Sequence[int], dims: int | Sequence[int] | None = ()
) -> Tensor:
    """Elements shifted along `dims`, wrapping around."""
    dims = () if dims is None else listed(dims)
    return record(_roll, input, listed(shifts), dims)


def _repeat(x: Node, times: tuple[int, ...]) -> Node:
    lead = len(times) - x.rank
    shape = (1,) * lead + tuple(x.shape)
    inner: list[int] = []
    wide: list[int] = []
    for size, n in zip(shape, times, strict=True):
        inner += [1, size]
        wide += [n, size]
    spread = ops.expand(ops.reshape(x, inner), wide)
    return ops.reshape(spread, [s * n for s, n in zip(shape, times, strict=True)])


@public("repeat", _repeat, function=False)
def repeat(
    input: Tensor, *args: int | Sequence[int], repeats: int | Sequence[int] | None = None
) -> Tensor:
    """The tensor tiled repeats[i] times along dimension i."""
    times = sizes(args, repeats, "repeat", "repeats")
    if len(times) < input.dim():
        raise RuntimeError(
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
            f"tensor{at_user_line()}"
        )
    return record(_repeat, input, times)


@public("tile")
def tile(
    input: Tensor, *args: int | Sequence[int], dims: int | Sequence[int] | None = None
) -> Tensor:
    times = sizes(args, dims, "tile", "dims")
    return repeat(input, (1,) * (input.dim() - len(times)) + times)


def _triangle(keep_lower: bool) -> Any:
    def build(x: Node, diagonal: int) -> Node:
        if x.rank < 2:
            raise RuntimeError(
                f"tril and triu: input tensor must have at least 2 dimensions, got {x.rank}"
                f"{at_user_line()}"
            )
        rows, columns = x.shape[-2:]
        i = ops.reshape(ops.iota(rows), (rows, 1))
        j = ops.reshape(ops.iota(columns), (1, columns))
        offset = j - i
        keep = offset <= diagonal if keep_lower else offset >= diagonal
        zero = ops.expand(ops.constant(0, x.dtype), x.shape)
        return ops.where(ops.expand(keep, x.shape), x, zero)

    return build


_tril, _triu = _triangle(True), _triangle(False)


@public("tril", _tril, in_place=True)
def tril(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The lower triangle of the last two dimensions; zero elsewhere."""
    return into(out, record(_tril, input, operator.index(diagonal)), cast=False)


@public("triu", _triu, in_place=True)
def triu(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """The upper triangle of the last two dimensions; zero elsewhere."""
    return into(out, record(_triu, input, operator.index(diagonal)), cast=False)


def _diag(x: Node, offset: int) -> Node:
    if x.rank == 2:
        return ops.diagonal(x, offset, 0, 1)
    if x.rank != 1:
        raise RuntimeError(f"diag(): Supports 1D or 2D tensors. Got {x.rank}D{at_user_line()}")
    return _diag_embed(x, offset, 0, 1)


@public("diag", _diag)
def diag(input: Tensor, diagonal: int = 0, *, out: Tensor | None = None) -> Tensor:
    """A vector as a diagonal matrix, or the diagonal of a matrix."""
    return into(out, record(_diag, input, operator.index(diagonal)), cast=False)


@public("meshgrid", method=False)
def meshgrid(*tensors: Any, indexing: str | None = None) -> tuple[Tensor, ...]:
    """Coordinate grids of 1-d tensors."""
    if indexing is None:
        warn(
            "torch.meshgrid: in an upcoming release, it will be required to pass the indexing "
            "argument.",
            once=True,
        )
        indexing = "ij"
    if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)):
        return meshgrid(*tensors[0], indexing=indexing)
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
            f"{at_user_line()}"
        )
    if not tensors:
        raise RuntimeError(f"meshgrid expects a non-empty TensorList{at_user_line()}")
    for i, each in enumerate(tensors, 1):
        need_tensor("meshgrid", each, "tensors", i)
        if each.dtype is not tensors[0].dtype:
            raise RuntimeError(
                "torch.meshgrid expects all tensors to have the same dtype, got "
                f"{tensors[0].dtype} and {each.dtype}{at_user_line()}"
            )
        if each.dim() > 1:
            raise RuntimeError(
                f"torch.meshgrid: expected 0-D or 1-D tensors, got one of shape "
                f"{tuple(each.shape)}{at_user_line()}"
            )
    if indexing == "xy" and len(tensors) > 1:
        swapped = meshgrid(tensors[1], tensors[0], *tensors[2:], indexing="ij")
        return swapped[1], swapped[0], *swapped[2:]
    shape = tuple(x.numel() for x in tensors)
    out = []
    for i, x in enumerate(tensors):
        line = [1] * len(shape)
        line[i] = shape[i]
        out.append(expand(reshape(x, line), shape))
    return tuple(out)


@public("cartesian_prod", method=False)
def cartesian_prod(*tensors: Tensor) -> Tensor:
    """All combinations of elements of 1-d tensors, one a row."""
    for each in tensors:
        if each.dim() != 1:
            raise RuntimeError(
                f"Expect a 1D vector, but got shape {list(each.shape)}{at_user_line()}"
            )
    grids = [flatten(g) for g in meshgrid(*tensors, indexing="ij")]
    return grids[0] if len(grids) == 1 else stack(grids, 1)


@public("combinations", method=False)
def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of `r` elements of a 1-d tensor, in their order, one a row."""
    import itertools

    from .from_data import tensor

    if input.dim() != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {input.shape}{at_user_line()}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    places = list(choose(range(input.shape[0]), r))
    if not r:
        return input[:0]
    if not places:
        return input[:0].unsqueeze(1).expand(0, r).clone()
    return input[tensor(places)]


@public("dstack", method=False)
def dstack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    return _into(out, cat([_volume(x) for x in _several("dstack", tensors)], 2))


@public("column_stack", method=False)
def column_stack(tensors: Sequence[Tensor], *, out: Tensor | None = None) -> Tensor:
    return _into(out, hstack([reshape(x, -1, 1) if x.dim() <= 1 else x for x in tensors]))


@public("hsplit")
@also_named(sections="indices_or_sections", indices="indices_or_sections")
def hsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    return _split_at("hsplit", input, indices_or_sections, 0 if input.dim() == 1 else 1, 1)


@public("vsplit")
@also_named(sections="indices_or_sections", indices="indices_or_sections")
def vsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    return _split_at("vsplit", input, indices_or_sections, 0, 2)


@public("dsplit")
@also_named(sections="indices_or_sections", indices="indices_or_sections")
def dsplit(input: Tensor, indices_or_sections: int | Sequence[int]) -> tuple[Tensor, ...]:
    return _split_at("dsplit", input, indices_or_sections, 2, 3)


def _split_at(name: str, input: Any, where: Any, dim: int, least: int) -> tuple[Any, ...]:
    """Apply `tensor_split` along `dim` to a tensor with at least `least` dimensions."""
    if input.dim() < least:
        raise RuntimeError(
            f"torch.{name} requires a tensor with at least {least} dimension(s), but got a tensor "
            f"with {input.dim()} dimensions!{at_user_line()}"
        )
    if isinstance(where, int) and (not where or input.shape[dim] % where):
        raise RuntimeError(
            f"torch.split: the size of dimension {dim} ({input.shape[dim]}) is not divisible by "
            "the "
            f"split_size {where}{at_user_line()}"
        )
    return tensor_split(input, where, dim)


@public("block_diag", method=False)
def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along a diagonal, zeros elsewhere."""
    from .creation import zeros

    if not tensors:
        return zeros(1, 0)
    blocks = [_plane(x) for x in tensors]
    width = sum(b.shape[1] for b in blocks)
    rows, left = [], 0
    for b in blocks:
        n, m = b.shape
        like: dict[str, Any] = {"dtype": b.dtype, "device": b.device}
        rows.append(cat([zeros(n, left, **like), b, zeros(n, width - left - m, **like)], 1))
        left += m
    return cat(rows, 0)


@public("rot90")
def rot90(input: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
    """`input` turned by k quarters in the plane of `dims`, from the first towards the second."""
    if input.dim() < 2:
        raise RuntimeError(
            f"rot90: expected total dims >= 2, but got total dims = {input.dim()}{at_user_line()}"
        )
    axes = [normalize_axis(d, input.dim()) for d in dims]
    if len(axes) != 2 or axes[0] == axes[1]:
        raise RuntimeError(
            f"rot90: expected two different rotation dims, but got {tuple(dims)}{at_user_line()}"
        )
    a, b = axes
    k = operator.index(k)
    if k % 4 == 0:
        return input.clone()
    if k % 4 == 2:
        return flip(input, a, b)
    if k % 4 == 1:
        return transpose(flip(input, b), a, b)
    return flip(transpose(input, a, b), b)


@public("diag_embed")
def diag_embed(input: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
    """The last dimension as diagonals of new matrices."""
    return record(
        _diag_embed, input, operator.index(offset), operator.index(dim1), operator.index(dim2)
    )


@builder("diag_embed")
def _diag_embed(x: Node, offset: int, dim1: int, dim2: int) -> Node:
    rank = x.rank + 1
    a, b = normalize_axis(dim1, rank), normalize_axis(dim2, rank)
    if a == b:
        raise RuntimeError(
            f"diagonal dimensions cannot be identical {dim1}, {dim2}{at_user_line()}"
        )
    n = x.shape[-1] + abs(offset)
    shape = list(x.shape[:-1])
    for axis in sorted((a, b)):
        shape.insert(axis, n)
    zero = ops.expand(ops.constant(0, x.dtype, x.device), shape)
    return ops.set_diagonal(zero, x, offset, a, b)


@public("diagflat")
def diagflat(input: Tensor, offset: int = 0) -> Tensor:
    """The flattened input as a diagonal matrix."""
    return diag(flatten(input), offset)


def _corners(row: int, col: int, offset: int, lower: bool, dtype: Any) -> Any:
    from tilewright.ir.dtype import int64

    from .from_data import tensor

    make = np.tril_indices if lower else np.triu_indices
    return tensor(np.stack(make(row, offset, col)).astype(named_dtype(dtype, int64).np))


@public("tril_indices", method=False)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """(row, column) of the elements of the lower triangle, in two rows."""
    return _corners(row, col, offset, True, dtype)


@public("triu_indices", method=False)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """(row, column) of the elements of the upper triangle, in two rows."""
    return _corners(row, col, offset, False, dtype)


@public("select_scatter")
def select_scatter(input: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
    """A copy with the slice `index` of `dim` replaced by `src`."""
    out = input.clone()
    slot = out.select(dim, int(index))
    if slot.shape != src.shape:
        raise RuntimeError(
            "expected src to have a size equal to the slice of self. src size = "
            f"{list(src.shape)}, slice size = {list(slot.shape)}{at_user_line()}"
        )
    slot.copy_(src)
    return out


@public("slice_scatter")
def slice_scatter(
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """A copy with a slice of `dim` replaced by `src`."""
    copy = input.clone()
    key = (slice(None),) * (dim % input.dim())
    copy[(*key, slice(start, end, step))] = src
    return into(out, copy)


@public("diagonal_scatter")
def diagonal_scatter(
    input: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> Tensor:
    """A copy with a diagonal replaced by `src`."""
    return record(
        _diagonal_scatter,
        input,
        src,
        operator.index(offset),
        operator.index(dim1),
        operator.index(dim2),
    )


@builder("diagonal_scatter")
def _diagonal_scatter(x: Node, src: Node, offset: int, dim1: int, dim2: int) -> Node:
    a, b = normalize_axis(dim1, x.rank), normalize_axis(dim2, x.rank)
    return ops.set_diagonal(x, to(src, x.dtype), offset, a, b)


@public("unravel_index", method=False)
def unravel_index(indices: Tensor, shape: int | Sequence[int]) -> tuple[Tensor, ...]:
    """Positions in a flattened tensor as coordinates in `shape`, a size or several."""
    if isinstance(shape, Handle) or not isinstance(shape, (int, Sequence)):
        raise TypeError(
            f"expected 'shape' to be int or sequence of ints, but got {type(shape)}{at_user_line()}"
        )
    shape = (shape,) if isinstance(shape, int) else shape
    for n in shape:
        if not isinstance(n, int):
            raise TypeError(
                f"expected 'shape' sequence to only contain ints, but got {type(n)}{at_user_line()}"
            )
        if n < 0:
            raise ValueError(
                f"'shape' cannot have negative values, but got {tuple(shape)}{at_user_line()}"
            )
    if indices.dtype.category not in (dtypes.UNSIGNED, dtypes.SIGNED):
        raise TypeError(
            f"expected 'indices' to be integer dtype, but got {indices.dtype}{at_user_line()}"
        )
    out: list[Tensor] = []
    indices = indices.long()
    for n in reversed(shape):
        out.append(indices % n)
        indices = indices // n
    return tuple(reversed(out))
