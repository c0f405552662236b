"""Normalizations along a dimension of the elements where a mask holds. What stands elsewhere in
the result doesn't matter."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir.op import not_implemented

from ..functions import sorting
from ..nn import functional as F
from .filling import filled
from .reductions import norm

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor


def softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """exp(x) / sum(exp(x)) along `dim`."""
    return F.softmax(filled(input, mask, -math.inf, _kind(input, dtype)), dim)


def log_softmax(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """log(softmax(x))."""
    return F.log_softmax(filled(input, mask, -math.inf, _kind(input, dtype)), dim)


def softmin(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """softmax(-x)."""
    return F.softmin(filled(input, mask, math.inf, _kind(input, dtype)), dim)


def normalize(
    input: Tensor,
    ord: float,
    dim: int,
    *,
    eps: float = 1e-12,
    dtype: DType | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """x divided by its `ord`-norm along `dim`, which counts as at least `eps`."""
    x: Any = input if dtype is None else input.to(dtype)
    length: Any = norm(x, ord, dim, keepdim=True, mask=mask)
    return filled(x, mask, 0) / length.clamp(min=eps)


def cumsum(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running sums along `dim`."""
    return sorting.cumsum(filled(input, mask, 0), dim, dtype=dtype or input.dtype)


def cumprod(
    input: Tensor, dim: int, *, dtype: DType | None = None, mask: Tensor | None = None
) -> Tensor:
    """Running products along `dim`."""
    return sorting.cumprod(filled(input, mask, 1), dim, dtype=dtype or input.dtype)


def _kind(input: Tensor, dtype: DType | None) -> DType:
    kind = input.dtype if dtype is None else dtype
    if not kind.is_floating_point:
        raise not_implemented("softmax_lastdim_kernel_impl", kind)
    return kind
