"""Results whose size is data: the places where a mask holds, distinct values, bins.

On the CPU NumPy reads the tensor. On a GPU kernels count and order the elements, and only the count
comes to the host.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented
from tilewright.ir.shape import normalize_axis

from .. import recording
from . import joining, shapes
from .arguments import into, need_tensor
from .call import public
from .creation import ones, zeros
from .from_data import beside
from .ranges import arange
from .searching import searchsorted
from .sorting import cumsum, sort

if TYPE_CHECKING:
    from .._tensor import Tensor


def _is_read(t: Any) -> bool:
    """Whether NumPy computes results whose size depends on the values of `t`."""
    return t._typed()[2] == "cpu"


# ---- places ----------------------------------------------------------------------------------


def places(mask: Tensor) -> Any:
    """The positions (int64, 1-d, in order) at which a 1-d mask holds."""
    if _is_read(mask):
        return beside(np.flatnonzero(mask.detach()._array()), mask)
    if not mask.numel():
        return zeros(0, dtype=dtypes.int64, device=mask.device)
    rank = cumsum(mask, 0)
    count = int(rank[-1].item())
    return searchsorted(rank, arange(1, count + 1, device=mask.device))


def repeated(counts: Tensor, total: int | None = None) -> Tensor:
    """Each position in `counts`, repeated counts[position] times; int64, 1-d. total: the sum of
    `counts`, if it is known."""
    ends = cumsum(counts, 0)
    if total is None:
        least, total = 0, 0
        if counts.numel():
            least, total = joining.stack([counts.amin().long(), ends[-1]]).tolist()
        if least < 0:
            raise RuntimeError(f"repeats can not be negative{at_user_line()}")
    return searchsorted(ends, arange(total, device=counts.device), right=True)


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[False] = False) -> Tensor: ...


@overload
def nonzero(input: Tensor, *, as_tuple: Literal[True]) -> tuple[Tensor, ...]: ...


@public("nonzero")
def nonzero(input: Tensor, *, as_tuple: bool = False, out: Any = None) -> Any:
    """Positions of the nonzero elements, one a row; or one tensor for each dimension."""
    if as_tuple and out is not None:
        raise RuntimeError(
            f"nonzero does not support the out kwarg when as_tuple is True{at_user_line()}"
        )
    shape = input.shape or (1,)
    if recording.stand_in(positions_of):
        table = recorded(positions_of, input)
        found = [table[:, axis] for axis in range(table.shape[1])]
        return tuple(found) if as_tuple else table
    if _is_read(input):
        table = _nonzero(np.atleast_1d(input.detach()._array()))
        if not as_tuple:
            return into(out, beside(table[:, : input.dim()], input), cast=False)
        found = [beside(line, input) for line in table.T]
    else:
        at, found = places(shapes.reshape(input.detach() != 0, -1)), []
        for size in reversed(shape):
            found.insert(0, at % max(size, 1))
            at = at // max(size, 1)
    if as_tuple:
        return tuple(found)
    if input.dim() == 0:
        return into(
            out, zeros(found[0].numel(), 0, dtype=dtypes.int64, device=input.device), cast=False
        )
    return into(out, joining.stack(found, -1), cast=False)


def recorded(build: Any, input: Tensor) -> Any:
    """The results of a call whose sizes are data, in a recording where sizes stand for any."""
    stand_in: Any = recording.stand_in(build)
    made = stand_in(recording.resolve(input))
    return tuple(recording.wrap_all(made)) if isinstance(made, tuple) else recording.wrap(made)


def positions_of(x: Node, count: int) -> Node:
    """The type of `nonzero` of a tensor with `count` nonzero elements: int64 [count, rank]."""
    return ops.expand(ops.constant(0, dtypes.int64), (count, x.rank))


def distinct_of(x: Node, count: int) -> tuple[Node, Node, Node]:
    """The types of the results of `unique` of a tensor with `count` distinct elements: these, the
    number of each element's among them, and how often each is there."""
    number = ops.constant(0, dtypes.int64)
    values = ops.expand(ops.constant(0, x.dtype), (count,))
    return values, ops.expand(number, x.shape), ops.expand(number, (count,))


def _nonzero(array: np.ndarray) -> np.ndarray:
    """The positions of the nonzero elements, one a row. NumPy finds them by far the fastest in one
    dimension, and a quotient gives its remainder cheaper than a second division."""
    at = np.flatnonzero(array)
    out = np.empty((at.size, array.ndim), np.int64)
    for axis in range(array.ndim - 1, 0, -1):
        size = max(array.shape[axis], 1)
        quotient = at // size
        np.subtract(at, quotient * size, out=out[:, axis])
        at = quotient
    out[:, 0] = at
    return out


@public("nonzero_static")
def nonzero_static(
    input: Tensor, *, size: int, fill_value: int = -1, out: Tensor | None = None
) -> Tensor:
    """The first `size` rows of `nonzero`, filled up with rows of `fill_value`."""
    if size < 0:
        raise RuntimeError(f"nonzero_static: 'size' must be a non-negative integer{at_user_line()}")
    found = nonzero(input)[:size]
    missing = size - found.shape[0]
    if missing:
        found = joining.cat([found, found.new_full((missing, input.dim()), fill_value)])
    return into(out, found)


@public("argwhere")
def argwhere(input: Tensor) -> Tensor:
    return nonzero(input)


# ---- values that differ ----------------------------------------------------------------------


@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...


@overload
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any: ...


@public("unique")
def unique(
    input: Tensor,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
    dim: int | None = None,
) -> Any:
    """The distinct elements (or slices along `dim`), in order."""
    need_tensor("unique", input)
    if input.dtype.is_complex:
        raise not_implemented("unique", input.dtype)
    if dim is None and recording.stand_in(distinct_of):
        return _chosen([*recorded(distinct_of, input)], return_inverse, return_counts)
    if dim is None and not _is_read(input):
        values, order = sort(shapes.reshape(input.detach(), -1))
        found = _runs(values)
        if return_inverse:
            inverse = zeros(order.shape, dtype=dtypes.int64, device=input.device)
            found[1] = inverse.scatter(0, order, found[1]).reshape(input.shape)
        return _chosen(found, return_inverse, return_counts)
    if dim is not None:
        dim = normalize_axis(dim, input.dim())
        if 0 in input.shape[:dim] + input.shape[dim + 1 :]:
            raise RuntimeError(
                "There are 0 sized dimensions, and they aren't selected, so unique cannot be "
                f"applied{at_user_line()}"
            )
        if not _is_read(input):
            return _chosen(_unique_slices(input.detach(), dim), return_inverse, return_counts)
    array = input.detach()._array()
    if array.dtype.kind == "V":  # of ml_dtypes, where NumPy has no order with NaN
        keys = array.astype(np.float32)
    else:  # bytes are sorted by counting
        keys = array.view(np.uint8) if array.dtype == bool else array
    wanted = [True, return_inverse, return_counts]
    known = _counted(keys, return_inverse) if dim is None else None
    if known is not None:
        arrays: list[Any] = [each for each, is_wanted in zip(known, wanted) if is_wanted]
    else:
        # NumPy looks for positions, which takes a sort of positions, only if they are wanted.
        made: Any = np.unique(  # type: ignore[call-overload]
            keys,
            return_inverse=return_inverse,
            return_counts=return_counts,
            axis=dim,
            equal_nan=False,
        )
        arrays = list(made) if isinstance(made, tuple) else [made]
    arrays[0] = arrays[0].astype(array.dtype, copy=False)
    if return_inverse:
        arrays[1] = arrays[1].reshape(input.shape if dim is None else -1)
    found = [beside(each, input) for each in arrays]
    return tuple(found) if len(found) > 1 else found[0]


def _counted(
    array: np.ndarray, return_inverse: bool
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray] | None:
    """The distinct elements of whole numbers, in order, the position of each element among them if
    they are asked for, and their counts: by counting, which takes a tenth of a sort. None where
    the numbers are too far apart."""
    if array.dtype.kind not in "iu" or not array.size:
        return None
    low, high = int(array.min()), int(array.max())
    if high - low > array.size:
        return None
    # Differences are right as unsigned numbers, whatever overflows.
    least = array.dtype.type(low)
    apart = (array.reshape(-1) - least).view(f"u{array.itemsize}")
    places = apart.astype(np.intp)
    counts = np.bincount(places, minlength=1)
    found = np.flatnonzero(counts)
    inverse = None
    if return_inverse:
        numbers = np.zeros(len(counts), np.int64)
        numbers[found] = np.arange(len(found))
        inverse = numbers[places]
    return found.astype(array.dtype) + least, inverse, counts[found]


def _unique_slices(x: Any, dim: int) -> list[Any]:
    """The distinct slices along `dim` in order, the number of each slice among them, and the count
    of each."""
    size, device = x.shape[dim], x.device
    rest = math.prod(x.shape[:dim]) * math.prod(x.shape[dim + 1 :])
    ranks = _dense_ranks(x.movedim(dim, 0).reshape(size, rest))
    while ranks.shape[1] > 1:
        # Two neighbouring columns become one, whose numbers have the order of the pairs.
        even = ranks.shape[1] // 2 * 2
        joined = _dense_ranks(ranks[:, :even:2] * size + ranks[:, 1:even:2])
        ranks = joining.cat([joined, ranks[:, even:]], 1)
    order = sort(ranks[:, 0], stable=True)[1]
    _, places_, counts = _runs(ranks[:, 0][order])
    firsts = cumsum(counts, 0) - counts
    inverse = zeros(order.shape, dtype=dtypes.int64, device=device).scatter(0, order, places_)
    return [x.index_select(dim, order[firsts]), inverse, counts]


def _dense_ranks(columns: Any) -> Any:
    """Count, for each element, the distinct smaller elements of its column (int64)."""
    size = columns.shape[0]
    values, order = sort(columns, 0, stable=True)
    begins = (values[1:] != values[:-1]).long()
    steps = joining.cat(
        [zeros((min(size, 1), columns.shape[1]), dtype=dtypes.int64, device=columns.device), begins]
    )
    return zeros(order.shape, dtype=dtypes.int64, device=columns.device).scatter(
        0, order, cumsum(steps, 0)
    )


@overload
def unique_consecutive(
    input: Tensor,
    return_inverse: Literal[False] = False,
    return_counts: Literal[False] = False,
    dim: int | None = None,
) -> Tensor: ...


@overload
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any: ...


@public("unique_consecutive")
def unique_consecutive(
    input: Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> Any:
    """The elements (or slices along `dim`) that differ from the one before."""
    if input.dtype.is_complex:
        raise not_implemented("unique", input.dtype)
    if dim is None and not _is_read(input):
        found = _runs(shapes.reshape(input.detach(), -1))
        found[1] = found[1].reshape(input.shape)
        return _chosen(found, return_inverse, return_counts)
    x = input.detach()._array()
    size = x.size if dim is None else x.shape[normalize_axis(dim, x.ndim)]
    begins = np.ones(size, dtype=bool)
    if dim is None:
        line = x.reshape(-1)
        np.not_equal(line[1:], line[:-1], out=begins[1:])
    else:
        line = np.moveaxis(x, dim, 0)
        rows = line.reshape(size, math.prod(line.shape[1:]))
        begins[1:] = (rows[1:] != rows[:-1]).any(axis=1)
    starts = np.flatnonzero(begins)
    values = line[starts] if dim is None else np.moveaxis(line[starts], 0, dim)
    found = [values]
    if return_inverse:
        found.append((np.cumsum(begins) - 1).reshape(x.shape if dim is None else -1))
    if return_counts:
        found.append(np.diff(np.append(starts, size)))
    made = [beside(each, input) for each in found]
    return made[0] if len(made) == 1 else tuple(made)


def _runs(line: Any) -> list[Any]:
    """The values of runs of equal elements, each element's run by number, and the runs' lengths."""
    size, device = line.numel(), line.device
    begins = joining.cat([ones(min(size, 1), dtype=dtypes.bool_, device=device), _differs(line)])
    starts = places(begins)
    stops = joining.cat([starts[1:], arange(size, size + min(size, 1), device=device)])
    return [line[starts], cumsum(begins, 0) - 1, stops - starts]


def _differs(line: Any) -> Any:
    """Whether each element but the first differs from the one before."""
    return line[1:] != line[:-1]


def _chosen(found: list[Any], with_inverse: bool, with_counts: bool) -> Any:
    values, inverse, counts = found
    out = [values, *([inverse] if with_inverse else []), *([counts] if with_counts else [])]
    return out[0] if len(out) == 1 else tuple(out)


# ---- bins ------------------------------------------------------------------------------------
