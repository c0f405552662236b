"""Running folds, sorting, and statistics of order: medians, modes, quantiles."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any, overload

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY
from tilewright.ir.shape import normalize_axis

from .. import return_types
from ..recording import Handle, record
from . import joining
from .arguments import as_handle, into
from .call import public, without_operator
from .elementwise import ON_A_GPU
from .promotion import to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..return_types import Indexed

# ---- running folds ---------------------------------------------------------------------------


def _cumsum(x: Node, dim: int, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else dtypes.int64
    return ops.cumsum(to(x, dtype), normalize_axis(dim, x.rank))


@public("cumsum", _cumsum, in_place=True, casts=ON_A_GPU)
def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Running sums along `dim`."""
    return into(out, record(_cumsum, input, operator.index(dim), dtype))


def _cumprod(x: Node, dim: int, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_floating_point else dtypes.int64
    return ops.cumprod(to(x, dtype), normalize_axis(dim, x.rank))


@public(
    "cumprod",
    _cumprod,
    in_place=True,
    casts=ON_A_GPU,
    unexportable=without_operator(REGISTRY["cumprod"]),
)
def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Running products along `dim`."""
    return into(out, record(_cumprod, input, operator.index(dim), dtype))


def _running(index_of: Any) -> Any:
    def build(x: Node, dim: int) -> tuple[Node, Node]:
        axis = normalize_axis(dim, x.rank)
        index = index_of(to(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x, axis)
        return ops.take_along(x, index, axis), index

    return build


_cummax, _cummin = _running(ops.cummax_index), _running(ops.cummin_index)


@public(
    "cummax", _cummax, unexportable=without_operator(REGISTRY["cummax"], REGISTRY["cummax_index"])
)
def cummax(input: Tensor, dim: int) -> Indexed:
    """The largest element so far along `dim`, and its position."""
    return return_types.cummax(*record(_cummax, input, operator.index(dim)))


@public(
    "cummin", _cummin, unexportable=without_operator(REGISTRY["cummin"], REGISTRY["cummin_index"])
)
def cummin(input: Tensor, dim: int) -> Indexed:
    """The smallest element so far along `dim`, and its position."""
    return return_types.cummin(*record(_cummin, input, operator.index(dim)))


def _logcumsumexp(x: Node, dim: int) -> Node:
    return ops.logcumsumexp(x, normalize_axis(dim, x.rank)) if x.rank else x


@public("logcumsumexp", _logcumsumexp, unexportable=without_operator(REGISTRY["logcumsumexp"]))
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log of the running sums of exp; no term is lost beside a larger one that comes later."""
    return record(_logcumsumexp, input, operator.index(dim))


@public("diff")
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
) -> Tensor:
    """The n-th differences of neighbours along `dim`."""
    if not input.dim():
        raise RuntimeError(f"diff expects input to be at least one-dimensional{at_user_line()}")
    parts = [p for p in (prepend, input, append) if p is not None]
    x = joining.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = x.shape[dim]
        high, low = (
            x.narrow(dim, min(size, 1), max(size - 1, 0)),
            x.narrow(dim, 0, max(size - 1, 0)),
        )
        x = high ^ low if x.dtype is dtypes.bool_ else high - low
    return x


# ---- sorting ---------------------------------------------------------------------------------


def _order(x: Node, axis: int, descending: bool) -> Node:
    key = to(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x
    return ops.argsort(key, axis, descending)


def _sort(x: Node, dim: int, descending: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    index = _order(x, axis, descending)
    return ops.take_along(x, index, axis), index


@public("sort", _sort)
def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Indexed:
    """The elements along `dim` in order, and the positions they had. Equal elements keep their
    order."""
    return return_types.sort(*record(_sort, input, operator.index(dim), bool(descending)))


@public("argsort")
def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The positions that sort the elements along `dim`."""
    return record(_sort, input, operator.index(dim), bool(descending))[1]


@public("msort")
def msort(input: Tensor) -> Tensor:
    return sort(input, 0).values


def _topk(x: Node, k: int, dim: int, largest: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    size = x.shape[axis] if x.rank else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: {k} of {size}{at_user_line()}")
    index = _order(x, axis, largest)
    if x.rank:
        index = ops.slice_axis(index, axis, 0, k)
    return ops.take_along(x, index, axis), index


@public("topk", _topk)
def topk(
    input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
) -> Indexed:
    """The k largest (or smallest) elements along `dim`, in order, and their positions."""
    return return_types.topk(
        *record(_topk, input, operator.index(k), operator.index(dim), bool(largest))
    )


def _kthvalue(x: Node, k: int, dim: int, keepdim: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    size = x.shape[axis] if x.rank else 1
    if not 1 <= k <= size:
        raise RuntimeError(
            f"kthvalue(): selected number k out of range for dimension {dim}{at_user_line()}"
        )
    index = _order(x, axis, False)
    if x.rank:
        index = ops.slice_axis(index, axis, k - 1, k)
    return _dropped(ops.take_along(x, index, axis), index, axis, keepdim)


def _dropped(values: Node, index: Node, axis: int, keepdim: bool) -> tuple[Node, Node]:
    if keepdim or not values.rank:
        return values, index
    return ops.squeeze(values, (axis,)), ops.squeeze(index, (axis,))


@public("kthvalue", _kthvalue)
def kthvalue(input: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Indexed:
    """The k-th smallest element along `dim`, counted from 1, and its position."""
    return return_types.kthvalue(
        *record(_kthvalue, input, operator.index(k), operator.index(dim), bool(keepdim))
    )


def _median(x: Node, dim: int | None, keepdim: bool, skip_nan: bool) -> tuple[Node, Node]:
    whole = dim is None
    if dim is None:
        x, dim = ops.reshape(x, (-1,)), 0
    axis = normalize_axis(dim, x.rank)
    if not x.rank:
        return x, ops.argmax(x, ())
    size = x.shape[axis]
    if not size and whole and x.dtype.is_floating_point:
        nan = ops.constant(math.nan, x.dtype)
        return nan, ops.zero_index(nan)
    if not size:
        raise IndexError(f"median(): expected a dimension with elements{at_user_line()}")
    order = _order(x, axis, False)
    shape = [1 if i == axis else s for i, s in enumerate(x.shape)]
    middle = ops.expand(ops.constant((size - 1) // 2, dtypes.int64), shape)
    if x.dtype.is_floating_point:  # NaN is sorted to the end
        count = ops.sum(to(ops.isnan(x), dtypes.int64), (axis,))
        left = ops.full_like(count, size) - count
        if skip_nan:
            middle = ops.maximum(
                ops.floor_divide(left - 1, ops.full_like(left, 2)), ops.zeros_like(left)
            )
        else:
            middle = ops.where(count > 0, left, middle)
    index = ops.take_along(order, middle, axis)
    return _dropped(ops.take_along(x, index, axis), index, axis, keepdim)


@overload
def median(input: Tensor) -> Tensor: ...


@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@public("median", _median)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The lower median of all elements; or along `dim`, with its position. NaN if any element is
    NaN."""
    if dim is None:
        return record(_median, input, None, False, False)[0]
    return return_types.median(*record(_median, input, operator.index(dim), bool(keepdim), False))


@overload
def nanmedian(input: Tensor) -> Tensor: ...


@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@public("nanmedian")
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The `median` of the elements that aren't NaN."""
    if dim is None:
        return record(_median, input, None, False, True)[0]
    return return_types.nanmedian(*record(_median, input, operator.index(dim), bool(keepdim), True))


def _mode(x: Node, dim: int, keepdim: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    if not x.rank:
        return x, ops.zero_index(x)
    size = x.shape[axis]
    if not size:
        raise IndexError(f"mode(): expected a dimension with elements{at_user_line()}")
    order = _order(x, axis, False)
    values = ops.take_along(x, order, axis)
    here = ops.positions_along(axis, x.shape)
    here = ops.expand(here, x.shape)
    old = ops.slice_axis(values, axis, 0, size - 1)
    first = ops.logical_not(ops.eq(ops.slice_axis(values, axis, 1, size), old))
    low = [1 if i == axis else 0 for i in range(x.rank)]
    first = ops.pad(first, low, [0] * x.rank)
    # Each element counts the equal ones before it: the largest count first appears at the last
    # element of the longest run.
    before = here - ops.cummax(ops.where(first, here, ops.zeros_like(here)), axis)
    index = ops.take_along(order, ops.argmax(before, (axis,)), axis)
    return _dropped(ops.take_along(x, index, axis), index, axis, keepdim)


@public("mode", _mode)
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Indexed:
    """The smallest of the most frequent elements along `dim`, and its last position."""
    return return_types.mode(*record(_mode, input, operator.index(dim), bool(keepdim)))


@public("quantile")
def quantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
) -> Tensor:
    """The q-quantiles of all elements, or along `dim`; several for a 1-d q come first."""
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise RuntimeError(f"quantile(): unknown interpolation {interpolation!r}{at_user_line()}")
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"quantile() input tensor must be either float or double dtype{at_user_line()}"
        )
    if not input.numel():
        raise RuntimeError(f"quantile() input tensor must be non-empty{at_user_line()}")
    if not isinstance(q, (Handle, int, float)):
        raise TypeError(
            f"quantile(): argument 'q' must be a float or a Tensor, not {type(q).__name__}"
            f"{at_user_line()}"
        )
    if not isinstance(q, Handle) and not 0 <= q <= 1:
        raise RuntimeError(f"quantile() q must be in the range [0, 1] but got {q}{at_user_line()}")
    shape = input.shape
    x = input.reshape(-1) if dim is None else input
    axis = normalize_axis(0 if dim is None else dim, x.dim())
    fractions = q if isinstance(q, Handle) else as_handle(float(q), input)
    ranks = fractions.to(input.dtype).reshape(-1) * (x.shape[axis] - 1)
    values = sort(x, axis).values
    low, high = ranks.floor(), ranks.ceil()
    if interpolation == "lower":
        high = low
    elif interpolation == "higher":
        low = high
    elif interpolation == "nearest":
        low = high = ranks.round()
    below = values.index_select(axis, low.long()).movedim(axis, 0)
    above = values.index_select(axis, high.long()).movedim(axis, 0)
    weight = (ranks - low).reshape(-1, *(1,) * (x.dim() - 1))
    if interpolation == "midpoint":
        weight = (weight > 0) * 0.5
    out = below + (above - below) * weight
    out = out.masked_fill(x.isnan().any(axis), float("nan"))
    if keepdim:
        kept = (
            [1] * len(shape)
            if dim is None
            else [1 if i == axis else s for i, s in enumerate(shape)]
        )
        out = out.reshape(-1, *kept)
    return out if fractions.dim() else out.squeeze(0)
