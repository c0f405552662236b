"""Reads at positions: gather, index_select, take, repeat_interleave."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast, normalize_axis

from ..recording import record, record_fallible
from ..recording.builders import builder
from . import shapes
from .arguments import into
from .call import public
from .data_sized import repeated
from .indexing import _index, gathered, getitem, is_shared, picked, positions
from .promotion import to
from .shapes import reshape

if TYPE_CHECKING:
    from .._tensor import Tensor


def _index_select(x: Node, dim: int, index: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    check_vector("index_select", index)
    check_dtype(index)
    if not x.rank:
        return ops.reshape(_index_select(ops.reshape(x, (1,)), 0, index), ())
    at = positions(ops.reshape(index, (-1,)), x.shape[axis], axis, "row")
    return ops.gather(x, at, axis)


def check_dtype(index: Node) -> None:
    if index.dtype not in (dtypes.int32, dtypes.int64):
        raise RuntimeError(
            f"Expected dtype int32/int64 for index, got {index.dtype}{at_user_line()}"
        )


def check_vector(name: str, index: Node) -> None:
    if index.rank > 1:
        raise IndexError(f"{name}(): Index is supposed to be a vector{at_user_line()}")


@public("index_select", _index_select)
def index_select(input: Tensor, dim: int, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The slices `index` (1-d) of dimension `dim`."""
    if input.dim() and index.dim() == 1 and is_shared(input):
        return into(out, picked(input, [index], normalize_axis(int(dim), input.dim()), "row"))
    found = record_fallible(_index_select, input, int(dim), index)
    return into(out, found, cast=False, apart=(input, index))


def _gather_dim(x: Node, dim: int, index: Node) -> Node:
    axis = normalize_axis(dim, x.rank)
    if 0 in index.shape:  # nothing is read, so PyTorch takes any rank
        return ops.reshape(ops.slice_axis(ops.reshape(x, (-1,)), 0, 0, 0), index.shape)
    return ops.take_along(x, elements(index, x, axis), axis)


def elements(index: Node, x: Node, axis: int) -> Node:
    """Checked positions along `axis`, each of which picks one element of `x`. A number counts as a
    vector of one element."""
    if 0 in index.shape:  # nothing is read, so PyTorch takes any dtype
        index = to(index, dtypes.int64)
    check_dtype(index)
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
def gather(
    input: Tensor,
    dim: int,
    index: Tensor,
    *,
    sparse_grad: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """out[i][j][k] = input[i][index[i][j][k]][k] (for dim 1).

    sparse_grad: a promise that few elements are read. The gradient is dense all the same.
    """
    found = record_fallible(_gather_dim, input, int(dim), index)
    return into(out, found, cast=False, apart=(input, index))


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
        return into(out, record(_take_along, input, dim, indices), cast=False)
    axis = normalize_axis(dim, input.dim())

    before, after = input.shape[:axis], input.shape[axis + 1 :]
    if (before, after) != (indices.shape[:axis], indices.shape[axis + 1 :]):
        whole = broadcast((*before, 1, *after), _with(indices.shape, axis, 1))
        input = shapes.expand(input, _with(whole, axis, input.shape[axis]))
        indices = shapes.expand(indices, _with(whole, axis, indices.shape[axis]))
    return into(out, record(_take_along, input, axis, indices), cast=False)


def _with(shape: Sequence[int], axis: int, size: int) -> tuple[int, ...]:
    """A shape with another size along an axis."""
    return (*shape[:axis], size, *shape[axis + 1 :])


@builder("take_along_dim", gradient="GatherBackward0", picks=0)
def _take_along(x: Node, dim: int, index: Node) -> Node:
    """Gather at positions modulo the size, as PyTorch does: none is out of range."""
    size = x.shape[normalize_axis(dim, x.rank)] if x.rank else 1
    return _gather_dim(x, dim, ops.remainder(index, ops.full_like(index, max(size, 1))))


def _taken(x: Node, *args: Any) -> Node:
    return _index(x, *args)


@public("take", _taken)
def take(input: Tensor, index: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Elements of the flattened input."""
    line = shapes.reshape(input, -1)
    whole = index.dim() and index.dtype is not dtypes.bool_ and index.dtype is not dtypes.uint8
    found = gathered(line, [(0, index)], _taken) if whole else getitem(line, index)
    return into(out, found, cast=False, apart=(input, index))


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
