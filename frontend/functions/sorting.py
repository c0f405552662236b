"""Running folds, sorting, and statistics of order: medians, modes, quantiles."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, overload

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axis

from .. import return_types
from ..recording import Handle, record
from . import joining
from .arguments import as_handle, into
from .call import public
from .elementwise import ON_A_GPU
from .promotion import refuse, to

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..return_types import Indexed

# ---- running folds ---------------------------------------------------------------------------


def _cumsum(x: Node, dim: int, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_differentiable else dtypes.int64
    return ops.cumsum(to(x, dtype), normalize_axis(dim, x.rank))


@public("cumsum", _cumsum, in_place=True, casts=ON_A_GPU)
def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Running sums along `dim`."""
    dtype = out.dtype if dtype is None and out is not None else dtype
    return into(out, record(_cumsum, input, operator.index(dim), dtype), cast=False)


def _cumprod(x: Node, dim: int, dtype: DType | None) -> Node:
    if dtype is None:
        dtype = x.dtype if x.dtype.is_differentiable else dtypes.int64
    return ops.cumprod(to(x, dtype), normalize_axis(dim, x.rank))


@public(
    "cumprod",
    _cumprod,
    in_place=True,
    casts=ON_A_GPU,
)
def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, out: Tensor | None = None
) -> Tensor:
    """Running products along `dim`."""
    dtype = out.dtype if dtype is None and out is not None else dtype
    return into(out, record(_cumprod, input, operator.index(dim), dtype), cast=False)


def _running(extremum: Any, index_of: Any) -> Any:
    def build(x: Node, dim: int) -> tuple[Node, Node]:
        axis = normalize_axis(dim, x.rank)
        order = to(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x
        return to(extremum(order, axis), x.dtype), index_of(order, axis)

    return build


_cummax = _running(ops.cummax, ops.cummax_index)
_cummin = _running(ops.cummin, ops.cummin_index)


@public("cummax", _cummax)
def cummax(input: Tensor, dim: int, *, out: Sequence[Tensor] | None = None) -> Indexed:
    """The largest element so far along `dim`, and its position."""
    return into(out, return_types.cummax(*record(_cummax, input, operator.index(dim))))


@public("cummin", _cummin)
def cummin(input: Tensor, dim: int, *, out: Sequence[Tensor] | None = None) -> Indexed:
    """The smallest element so far along `dim`, and its position."""
    return into(out, return_types.cummin(*record(_cummin, input, operator.index(dim))))


def _logcumsumexp(x: Node, dim: int) -> Node:
    axis = normalize_axis(dim, x.rank)
    if not x.rank:
        return x
    return _of_complex_sums(x, axis) if x.dtype.is_complex else ops.logcumsumexp(x, axis)


def _of_complex_sums(x: Node, axis: int) -> Node:
    """logcumsumexp of complex numbers: each takes in the one before it, then two more, four, …"""
    given, size, by = x, x.shape[axis], 1
    while by < size:
        rest = complex_logaddexp(
            ops.slice_axis(x, axis, by, size), ops.slice_axis(x, axis, 0, size - by)
        )
        x = ops.cat([ops.slice_axis(x, axis, 0, by), rest], axis)
        by *= 2
    return _in_phase(x, given, axis) if size > 1 else x


def _in_phase(found: Node, x: Node, axis: int) -> Node:
    """The running sums `found` with the turns that they have when terms are added one by one: each
    phase is near that of the sum before it or that of its own term, whichever is the larger."""
    size = x.shape[axis]

    def later(node: Node) -> Node:
        return ops.slice_axis(node, axis, 1, size)

    def turns(angle: Node) -> Node:
        return ops.round(angle / math.tau)

    own, phase = ops.imag(x), ops.imag(found)
    begins = ops.lt(ops.slice_axis(ops.real(found), axis, 0, size - 1), later(ops.real(x)))
    base = ops.where(begins, later(own), ops.slice_axis(phase, axis, 0, size - 1))
    step = later(phase) - base
    first = ops.full_like(ops.slice_axis(own, axis, 0, 1), 0)
    step = ops.cat([first, step - turns(step) * math.tau], axis)
    total = ops.cumsum(step, axis)
    place = ops.positions_along(axis, x.shape)
    place = ops.where(ops.cat([ops.eq(first, first), begins], axis), place, place * 0)
    place = ops.cummax(place, axis)
    wanted = ops.take_along(own + step - total, place, axis) + total
    more = turns(wanted - phase)
    more = ops.where(ops.eq(more - more, ops.full_like(more, 0)), more, ops.full_like(more, 0))
    return found + to(more, x.dtype) * ops.constant(complex(0, math.tau), x.dtype)


def complex_logaddexp(a: Node, b: Node) -> Node:
    """log(exp(a) + exp(b)), without overflow. Terms of both -inf are -inf.

    Its imaginary part is near that of the term with the larger real part, so that phases aren't
    wrapped around.
    """
    most = ops.where(ops.lt(ops.real(a), ops.real(b)), b, a)
    size = ops.real(most)
    finite = ops.eq(size - size, ops.full_like(size, 0))
    most = ops.where(finite, most, ops.full_like(most, 0))
    return most + ops.log(ops.exp(a - most) + ops.exp(b - most))


@public("logcumsumexp", _logcumsumexp)
def logcumsumexp(input: Tensor, dim: int, *, out: Tensor | None = None) -> Tensor:
    """log of the running sums of exp; no term is lost beside a larger one that comes later."""
    return into(out, record(_logcumsumexp, input, operator.index(dim)), cast=False)


@public("diff")
def diff(
    input: Tensor,
    n: int = 1,
    dim: int = -1,
    prepend: Tensor | None = None,
    append: Tensor | None = None,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The n-th differences of neighbours along `dim`."""
    if not input.dim():
        raise RuntimeError(f"diff expects input to be at least one-dimensional{at_user_line()}")
    if n < 0:
        raise RuntimeError(f"order must be non-negative but got {n}{at_user_line()}")
    if not n:
        return into(out, input.clone(), cast=False)
    parts = [p for p in (prepend, input, append) if p is not None]
    x = joining.cat(parts, dim) if len(parts) > 1 else input
    for _ in range(n):
        size = x.shape[dim]
        high, low = (
            x.narrow(dim, min(size, 1), max(size - 1, 0)),
            x.narrow(dim, 0, max(size - 1, 0)),
        )
        x = high ^ low if x.dtype is dtypes.bool_ else high - low
    return into(out, x)


# ---- sorting ---------------------------------------------------------------------------------


def _order(x: Node, axis: int, descending: bool) -> Node:
    key = to(x, dtypes.uint8) if x.dtype is dtypes.bool_ else x
    return ops.argsort(key, axis, descending)


def _sort(x: Node, dim: int, descending: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    index = _order(x, axis, descending)
    return ops.take_along(x, index, axis), index


@public("sort", _sort)
def sort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Indexed:
    """The elements along `dim` in order, and the positions they had. Equal elements keep their
    order."""
    return into(
        out, return_types.sort(*record(_sort, input, operator.index(dim), bool(descending)))
    )


@public("argsort")
def argsort(
    input: Tensor,
    dim: int = -1,
    descending: bool = False,
    stable: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The positions that sort the elements along `dim`."""
    return into(out, record(_sort, input, operator.index(dim), bool(descending))[1])


@public("msort")
def msort(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    return into(out, sort(input, 0).values, cast=False)


def _topk(x: Node, k: int, dim: int, largest: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    refuse("topk", x, dtypes.BOOL, dtypes.COMPLEX)
    size = x.shape[axis] if x.rank else 1
    if not 0 <= k <= size:
        raise RuntimeError(f"selected index k out of range: {k} of {size}{at_user_line()}")
    index = _order(x, axis, largest)
    if x.rank:
        index = ops.slice_axis(index, axis, 0, k)
    return ops.take_along(x, index, axis), index


@public("topk", _topk)
def topk(
    input: Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,
    sorted: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> Indexed:
    """The k largest (or smallest) elements along `dim`, in order, and their positions."""
    return into(
        out,
        return_types.topk(
            *record(_topk, input, operator.index(k), operator.index(dim), bool(largest))
        ),
    )


def _kthvalue(x: Node, k: int, dim: int, keepdim: bool) -> tuple[Node, Node]:
    axis = normalize_axis(dim, x.rank)
    refuse("kthvalue_cpu", x, dtypes.BOOL)
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
def kthvalue(
    input: Tensor,
    k: int,
    dim: int = -1,
    keepdim: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Indexed:
    """The k-th smallest element along `dim`, counted from 1, and its position."""
    return into(
        out,
        return_types.kthvalue(
            *record(_kthvalue, input, operator.index(k), operator.index(dim), bool(keepdim))
        ),
        cast=False,
        apart=(input,),
    )


def _median(x: Node, dim: int | None, keepdim: bool, skip_nan: bool) -> tuple[Node, Node]:
    refuse("median_cpu", x, dtypes.BOOL)
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
    value = ops.take_along(x, index, axis)
    if whole and x.requires_grad:  # its ties share the gradient evenly, as those of a maximum do
        is_median = ops.eq(x, ops.expand(ops.detach(value), x.shape))
        shared = ops.max(ops.where(is_median, x, ops.full_like(x, -math.inf)), (axis,))
        value = ops.where(ops.isnan(value), value, shared)
    return _dropped(value, index, axis, keepdim)


def _median_name(args: Sequence[Any]) -> str:
    _, dim, _, skips = args
    return f"{'Nanmedian' if skips else 'Median'}Backward{int(dim is not None)}"


@overload
def median(input: Tensor) -> Tensor: ...


@overload
def median(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@public("median", _median, gradient=_median_name)
def median(input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None) -> Any:
    """The lower median of all elements; or along `dim`, with its position. NaN if any element is
    NaN."""
    if dim is None:
        return into(out, record(_median, input, None, False, False)[0])
    return into(
        out, return_types.median(*record(_median, input, operator.index(dim), bool(keepdim), False))
    )


@overload
def nanmedian(input: Tensor) -> Tensor: ...


@overload
def nanmedian(input: Tensor, dim: int, keepdim: bool = False) -> Indexed: ...


@public("nanmedian")
def nanmedian(
    input: Tensor, dim: int | None = None, keepdim: bool = False, *, out: Any = None
) -> Any:
    """The `median` of the elements that aren't NaN."""
    if dim is None:
        return into(out, record(_median, input, None, False, True)[0])
    return into(
        out,
        return_types.nanmedian(*record(_median, input, operator.index(dim), bool(keepdim), True)),
    )


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
def mode(
    input: Tensor, dim: int = -1, keepdim: bool = False, *, out: Sequence[Tensor] | None = None
) -> Indexed:
    """The smallest of the most frequent elements along `dim`, and its last position."""
    return into(out, return_types.mode(*record(_mode, input, operator.index(dim), bool(keepdim))))


@public("quantile")
def quantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """The q-quantiles of all elements, or along `dim`; several for a 1-d q come first.

    interpolation: 'linear', 'lower', 'higher', 'nearest' or 'midpoint', between the two nearest
        elements. NaN if any element is NaN.
    """
    return into(out, _quantile("quantile", input, q, dim, keepdim, interpolation), cast=False)


@public("nanquantile")
def nanquantile(
    input: Tensor,
    q: float | Tensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    interpolation: str = "linear",
    out: Tensor | None = None,
) -> Tensor:
    """The `quantile` of the elements that aren't NaN."""
    return into(out, _quantile("nanquantile", input, q, dim, keepdim, interpolation), cast=False)


def _quantile(name: str, input: Any, q: Any, dim: Any, keepdim: bool, interpolation: str) -> Any:
    if interpolation not in ("linear", "lower", "higher", "nearest", "midpoint"):
        raise RuntimeError(
            f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, "
            f"but got {interpolation}{at_user_line()}"
        )
    if input.dtype not in (dtypes.float32, dtypes.float64):
        raise RuntimeError(
            f"{name}() input tensor must be either float or double dtype{at_user_line()}"
        )
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty{at_user_line()}")
    if not isinstance(q, (Handle, int, float)):
        raise TypeError(
            f"{name}(): argument 'q' must be a float or a Tensor, not {type(q).__name__}"
            f"{at_user_line()}"
        )
    if not isinstance(q, Handle) and not 0 <= q <= 1:
        raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q}{at_user_line()}")
    fractions: Any = q if isinstance(q, Handle) else as_handle(float(q), input)
    if fractions.dim() > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor{at_user_line()}")
    if fractions.dtype is not input.dtype:
        raise RuntimeError(
            f"{name}() q tensor must be same dtype as the input tensor{at_user_line()}"
        )
    axis = None if dim is None else normalize_axis(dim, input.dim())
    shape = tuple(input.shape)
    # The elements lie along the last dimension.
    lines = input.reshape(1, -1)
    if axis is not None and shape:
        lines = input.movedim(axis, -1).reshape(-1, shape[axis])
    missing = lines.isnan()
    skips = name == "nanquantile"
    last = lines.shape[1] - 1 - missing.sum(1) if skips else lines.new_full([1], lines.shape[1] - 1)
    ranks = fractions.reshape(-1, 1) * last.clamp(min=0).to(input.dtype)
    low, high = ranks.floor(), ranks.ceil()
    if interpolation == "lower":
        high = low
    elif interpolation == "higher":
        low = high
    elif interpolation == "nearest":
        low = high = ranks.round()
    weight = (ranks - low).t()
    if interpolation == "midpoint":
        weight = (weight > 0).to(input.dtype) * 0.5
    # NaN are sorted to the end.
    values, many = sort(lines, 1)[0], (lines.shape[0], fractions.numel())
    below = values.gather(1, low.t().long().expand(many))
    above = values.gather(1, high.t().long().expand(many))
    result = below + (above - below) * weight
    if not skips:
        result = result.masked_fill(missing.any(1, keepdim=True), math.nan)
    rest = () if axis is None else (*shape[:axis], *shape[axis + 1 :])
    if keepdim:
        rest = tuple(1 if axis in (None, i) else n for i, n in enumerate(shape))
    result = result.t().reshape(-1, *rest)
    return result if fractions.dim() else result[0]
