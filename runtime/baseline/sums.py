"""Sums by NumPy, which adds pairs of pairs only along the last axes of an array.

There float32 is summed as it is. Along other axes a long sum of float32 is taken in float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import accumulator, float32
from tilewright.ir.node import Node

_LONG = 64
"""Terms from which a sum along other than the last axes is long."""

_ROW, _LONG_ROW = 8, 1 << 14
"""Terms from which a row is summed by itself, and up to which its products are."""


def total(x: Node, axes: Sequence[int], ufunc: Any = np.add) -> Callable[[Any], Any]:
    """The sum of arrays like `x` over `axes`, which stay with size 1. It has the accumulator's
    dtype. ufunc: np.multiply for the product."""
    axes, np_dtype = tuple(axes), accumulator(x.dtype).np
    shape, others, kept = _rows(x, axes)
    many = x.dtype is float32 and math.prod([shape[a] for a in others]) >= _LONG
    if not many or shape[-1] < _ROW:
        wide = np.dtype(np.float64) if many else np_dtype
        return lambda a: ufunc.reduce(a, axes, wide, None, True).astype(np_dtype, copy=False)

    def total(a: Any) -> Any:
        sums = ufunc.reduce(a.reshape(shape), -1)
        return ufunc.reduce(sums, others, np.float64).astype(np_dtype).reshape(kept)

    return total


def products(x: Node, axes: Sequence[int]) -> Callable[[Any, Any], Any]:
    """The sum of a * b over `axes`, as `total`, for two arrays like `x`."""
    shape, others, kept = _rows(x, axes)
    if not _ROW <= shape[-1] <= _LONG_ROW or accumulator(x.dtype) is not x.dtype:
        whole = total(x, axes)
        return lambda a, b: whole(a * b)
    np_dtype, wide = x.dtype.np, np.promote_types(x.dtype.np, np.float64)

    def products(a: Any, b: Any) -> Any:
        sums = np.vecdot(a.reshape(shape), b.reshape(shape))
        if others:
            sums = np.add.reduce(sums, others, wide).astype(np_dtype, copy=False)
        return sums.reshape(kept)

    return products


def _rows(x: Node, axes: Sequence[int]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """(the shape of `x` with the last of `axes` as one, the other axes, the shape of the sum)."""
    first = x.rank
    while first - 1 in axes:
        first -= 1
    shape = (*x.shape[:first], math.prod(x.shape[first:]))
    kept = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    return shape, tuple([a for a in axes if a < first]), kept
