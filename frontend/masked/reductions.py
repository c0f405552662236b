"""Reductions of the elements where a mask holds. Where it holds nowhere, each has its identity."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line
from tilewright.ir.op import not_implemented

from ..functions import composed, reduction, sorting, statistics
from .filling import broadcast, filled

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..functions.reduction import Dim


def sum(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The sum over `dim`; 0 of no elements."""
    return reduction.sum(filled(input, mask, 0), _dims(dim), bool(keepdim), dtype=dtype)


def prod(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The product over `dim`; 1 of no elements."""
    return reduction.prod(filled(input, mask, 1), _dims(dim), bool(keepdim), dtype=dtype)


def amax(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The largest element over `dim`; the least value of the dtype of no elements."""
    x = filled(input, mask, dtypes.lowest(dtype or input.dtype), dtype)
    return reduction.amax(x, _dims(dim), bool(keepdim))


def amin(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The smallest element over `dim`; the largest value of the dtype of no elements."""
    x = filled(input, mask, dtypes.highest(dtype or input.dtype), dtype)
    return reduction.amin(x, _dims(dim), bool(keepdim))


def argmax(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The position of the first largest element, in the dtype of `input`; 0 of no elements."""
    x = filled(input, mask, dtypes.lowest(dtype or input.dtype), dtype)
    return reduction.argmax(x, dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(
    input: Tensor,
    dim: int | None = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The position of the first smallest element, in the dtype of `input`; 0 of no elements."""
    x = filled(input, mask, dtypes.highest(dtype or input.dtype), dtype)
    return reduction.argmin(x, dim, bool(keepdim)).to(dtype or input.dtype)


def mean(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The mean over `dim`; NaN of no elements."""
    x: Any = input if dtype is None else input.to(dtype)
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise ValueError(
            "mean(): Could not infer output dtype. Input dtype must be either a floating point or "
            f"complex dtype. Got: {x.dtype}{at_user_line()}"
        )
    if mask is None:
        return reduction.mean(x, _dims(dim), bool(keepdim))
    return sum(x, dim, keepdim=keepdim, mask=mask) / _count(input, dim, keepdim, mask)


def median(
    input: Tensor,
    dim: int = -1,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The lower median along `dim`; NaN of no elements."""
    x: Any = filled(input, mask, math.nan, dtype)
    if mask is None:
        return sorting.median(x, dim, bool(keepdim))[0]
    if bool((x.isnan() & broadcast(input, mask)).any().item()):
        raise ValueError(f"input expected no NaN values where mask holds{at_user_line()}")
    return sorting.nanmedian(x, dim, bool(keepdim))[0]


def logsumexp(
    input: Tensor,
    dim: Dim = None,
    *,
    keepdim: bool = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """log(sum(exp)) over `dim`, in the dtype of `input`; -inf of no elements."""
    x = _floats(input if dtype is None else input.to(dtype))
    made = reduction.logsumexp(filled(x, mask, -math.inf), _every(x, dim), bool(keepdim))
    return made.to(dtype or input.dtype)


def logaddexp(
    input: Tensor,
    other: Tensor,
    *,
    dtype: DType | None = None,
    input_mask: Tensor | None = None,
    other_mask: Tensor | None = None,
) -> Tensor:
    """log(exp(input) + exp(other)), without the terms that are masked out."""
    a, b = (t if dtype is None else t.to(dtype) for t in (input, other))
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise not_implemented("logaddexp_cpu", a.dtype)
    return composed.logaddexp(filled(a, input_mask, -math.inf), filled(b, other_mask, -math.inf))


def norm(
    input: Tensor,
    ord: float | None = 2.0,
    dim: Dim = None,
    *,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The `ord`-norm of the elements over `dim`; 0 of no elements, inf if `ord` is -inf."""
    power = 2.0 if ord is None else float(ord)
    x = filled(input, mask, math.inf if power == -math.inf else 0, dtype)
    return reduction.norm(x, power, _dims(dim), bool(keepdim))


def var(
    input: Tensor,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The variance over `dim`, divided by the count less `correction`, which is 1 by default."""
    if correction is None:
        correction = 1 if unbiased is None or unbiased else 0
    x = _floats(input if dtype is None else input.to(dtype))
    if mask is None:
        plain = statistics.var(x, _dims(dim), keepdim=bool(keepdim), correction=correction)
        return plain.to(x.dtype)
    count: Any = _count(x, dim, True, mask)
    centered = filled(x - sum(x, dim, keepdim=True, mask=mask) / count, mask, 0)
    squares: Any = reduction.sum(centered * centered.conj(), _dims(dim), bool(keepdim))
    left = (_count(x, dim, keepdim, mask) - correction).clamp(min=0)
    return (squares / left).to(x.dtype)


def std(
    input: Tensor,
    dim: Dim = None,
    unbiased: bool | None = None,
    *,
    correction: float | None = None,
    keepdim: bool | None = False,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """The root of `var`."""
    return var(
        input, dim, unbiased, correction=correction, keepdim=keepdim, dtype=dtype, mask=mask
    ).sqrt()


def _dims(dim: Any) -> Any:
    """() is all dimensions."""
    return None if isinstance(dim, (tuple, list)) and not dim else dim


def _every(x: Any, dim: Any) -> Any:
    return tuple(range(x.dim())) if _dims(dim) is None else dim


def _floats(x: Any) -> Any:
    return x if x.dtype.is_floating_point else x * 1.0


def _count(input: Any, dim: Any, keepdim: Any, mask: Any) -> Any:
    """How many elements are there."""
    return reduction.sum(broadcast(input, mask), _dims(dim), bool(keepdim))
