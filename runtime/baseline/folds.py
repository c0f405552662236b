"""Folds: sums, extrema and their positions.

Rows of floats are folded by native code, the rest by NumPy. NumPy adds pairs of pairs only along
the last axes of an array. There float32 is summed as it is; along other axes a long sum of it is
taken in float64. A fold of few elements along the last axes, as in pooling, is a call for each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import row_folds, tile_folds
from tilewright.ir.dtype import DType, accumulator, float32, float64
from tilewright.ir.node import Node
from tilewright.ir.numeric.products import are_rows, total_product

from . import linking
from .quiet import bare, quiet, quietly

_LONG = 64
"""Terms from which a sum along other than the last axes is long."""

_ROW, _LONG_ROW = 8, 1 << 14
"""Terms from which a row is summed by itself, and up to which its products are."""


_FEW, _MANY, _MANY_WINDOWS = 16, 512, 32
"""The most elements of a fold that has a call for each, and the fewest such folds at once: along
one axis, and along several, as in windows."""


def total(x: Node, axes: Sequence[int], ufunc: Any = np.add) -> Callable[[Any], Any]:
    """The sum of arrays like `x` over `axes`, which stay with size 1. It has the accumulator's
    dtype. ufunc: np.multiply for the product."""
    axes, np_dtype, terms = tuple(axes), accumulator(x.dtype).np, _terms(x, axes)
    if terms is not None and np_dtype == x.dtype.np:
        return _one_by_one(terms, ufunc)
    native = _by_rows(x, axes, ufunc)
    if native is not None:
        return native
    shape, others, kept = _rows(x, axes)
    if ufunc is np.multiply and are_rows(x.shape, x.dtype, axes):
        rows = (*x.shape[: x.rank - len(axes)], -1)
        return lambda a: total_product(a.reshape(rows))[0].reshape(kept)
    many = x.dtype is float32 and math.prod([shape[a] for a in others]) >= _LONG
    leading = sorted(axes) == list(range(len(axes))) and len(axes) < x.rank
    if many and leading:
        return _by_blocks(math.prod([x.shape[a] for a in axes]), kept, ufunc)
    if not many or shape[-1] < _ROW:
        wide = np.dtype(np.float64) if many else np_dtype
        order: Any = "C" if shape[-1] >= _LONG else "K"
        if wide == np_dtype and order == "K":
            fold: Callable[[Any], Any] = functools.partial(_reduced, ufunc, axes, wide)
        else:

            def fold(a: Any) -> Any:
                a = np.asarray(a, order=order)
                return ufunc.reduce(a, axes, wide, None, True).astype(np_dtype, copy=False)

        return fold if x.dtype.is_floating_point or x.dtype.is_complex else quiet(fold)

    def total(a: Any) -> Any:
        sums = ufunc.reduce(a.reshape(shape), -1)
        return ufunc.reduce(sums, others, np.float64).astype(np_dtype).reshape(kept)

    return total


def of_last_axes(
    axes: Sequence[int], ufunc: Any, dtype: DType, other: Callable[[Any], Any]
) -> Callable[[Any], Any] | None:
    """The fold of arrays of any sizes over `axes`, which stay with size 1: by native code of the
    pack where they are the last ones and few elements lie in order. None if there is no such code.

    dtype: theirs, and that of the result. other: the fold by `total` or `extremum`, which have the
    same bits. It is what folds all other arrays.
    """
    fold = _ROW_FOLDS.get(ufunc)
    if fold is None or (dtype, fold) not in row_folds.KINDS or not axes:
        return None
    linked = linking.ready(_row_name(dtype, fold))
    if linked is None or tuple(axes) != tuple(range(axes[0], axes[0] + len(axes))):
        return None
    from ..native import calls

    many = _MANY if len(axes) == 1 else _MANY_WINDOWS
    limits = (_NATIVE_FROM, _FEW, many)
    made: Callable[[Any], Any] = calls.folding(
        linked, dtype.np, axes, limits, lambda a: quietly(other, a)
    )
    return made


def rows_total(rows: Any) -> Any:
    """The sum of many rows of floats."""
    count = len(rows)
    if rows.dtype == np.float32 and count >= _LONG:
        return _by_blocks(count, rows.shape[1:], np.add)(rows)
    return np.add.reduce(rows, 0)


def _by_blocks(count: int, kept: tuple[int, ...], ufunc: Any) -> Callable[[Any], Any]:
    """The fold of so many rows of float32: blocks of them as they are, and the blocks in
    float64."""
    whole = count // _LONG * _LONG

    def fold(a: Any) -> Any:
        rows = a.reshape(count, -1)
        parts = ufunc.reduce(rows[:whole].reshape(whole // _LONG, _LONG, -1), 1)
        found = ufunc.reduce(parts, 0, np.float64)
        if whole < count:
            ufunc(found, ufunc.reduce(rows[whole:], 0), found)
        return found.astype(np.float32).reshape(kept)

    return fold


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


def extremum(x: Node, axes: Sequence[int], ufunc: Any) -> Callable[[Any], Any]:
    """The extremum of arrays like `x` over `axes`. ufunc: np.maximum or np.minimum."""
    axes, terms = tuple(axes), _terms(x, axes)
    if terms is not None:
        return _one_by_one(terms, ufunc)
    native = _by_rows(x, axes, ufunc)
    if native is not None:
        return native
    fold = functools.partial(_reduced, ufunc, axes, None)
    return fold if x.dtype.is_floating_point else quiet(fold)


def _reduced(ufunc: Any, axes: Sequence[int], dtype: Any, a: Any) -> Any:
    return ufunc.reduce(a, axes, dtype, None, True)


def place(x: Node, axes: Sequence[int], ufunc: Any) -> Callable[[Any], Any] | None:
    """The first position of the extremum, in row-major order of `axes`; None for several long
    ones of more."""
    terms = _terms(x, axes)
    if terms is None:
        function = np.argmax if ufunc is np.maximum else np.argmin
        axis = None if sorted(axes) == list(range(x.rank)) else axes[0]
        if axis is not None and len(axes) > 1:
            return None
        if x.rank:  # a method takes a quarter of the time that NumPy's function takes to find it
            name = function.__name__
            return bare(lambda a: getattr(a, name)(axis, keepdims=True))
        return lambda a: function(a, axis, keepdims=True)
    worse = np.less_equal if ufunc is np.maximum else np.greater_equal

    def place(a: Any) -> Any:
        best = a[terms[0]].copy()
        found = np.zeros(best.shape, np.int64)
        for i, term in enumerate(terms[1:], 1):
            each = a[term]
            better = worse(each, best)
            np.logical_not(better, better)  # also if either is NaN
            better &= best == best
            np.maximum(found, better * np.int64(i), out=found)
            ufunc(best, each, out=best)
        return found

    return place


_OPS: dict[Any, str] = {
    np.add: "sum", np.multiply: "product", np.maximum: "max", np.minimum: "min"
}  # fmt: skip
_NATIVE_FROM, _NATIVE_ROW = 1 << 12, 64
"""Elements from which native code folds rows, and those of a row at least."""

_LEAST_PIECE, _MOST_PIECE = 1 << 9, 1 << 12
"""The elements of a piece of a longer row, whose sum is taken in their own dtype."""


@functools.cache
def _piece(length: int) -> int:
    """The size of the pieces of a row: all of it, or its largest divisor that a piece may have."""
    if length <= _MOST_PIECE:
        return length
    return next(n for n in range(_MOST_PIECE, 0, -1) if length % n == 0)


def has_code(x: Node, axes: Sequence[int], op: str) -> bool:
    """Whether native code folds rows like those of `x` by one call."""
    ufunc = next((u for u, name in _OPS.items() if name == op), None)
    return ufunc is not None and _by_rows(x, tuple(axes), ufunc) is not None


def _by_rows(x: Node, axes: Sequence[int], ufunc: Any) -> Callable[[Any], Any] | None:
    """The fold of rows of floats by native code; None for other axes and dtypes."""
    shape, others, kept = _rows(x, axes)
    length, size = shape[-1], x.shape.numel()
    if others or x.rank - 1 not in axes or size < _NATIVE_FROM or length < _NATIVE_ROW:
        return None
    piece = _piece(length)
    if piece < _LEAST_PIECE and piece < length:
        return None
    run = _native(x.dtype, _OPS.get(ufunc))
    if run is None:
        return None
    np_dtype, count = x.dtype.np, size // piece

    def fold(a: Any) -> Any:
        parts = np.empty(count)
        run((parts, np.asarray(a, order="C")), (size, 0, piece, size))
        if piece < length:
            parts = ufunc.reduce(parts.reshape(-1, length // piece), -1)
        return parts.astype(np_dtype).reshape(kept)

    return fold


@functools.cache
def _native(dtype: DType, op: str | None) -> Callable[..., Any] | None:
    linked = None if op is None or dtype not in (float32, float64) else code(dtype, op)
    return None if linked is None else linking.function(linked, tile_folds.WORDS, 2)


@functools.cache
def code(dtype: DType, op: str) -> Any:
    """The native code of `tile_folds` for a fold; None if there is none."""
    return linking.linked(_name(dtype, op), lambda: tile_folds.text(dtype, op))


def _name(dtype: DType, op: str) -> str:
    return f"tiles folded by {op} {dtype.name}"


_ROW_FOLDS = {
    np.add: row_folds.SUM, np.maximum: row_folds.MAXIMUM, np.minimum: row_folds.MINIMUM
}  # fmt: skip


def _row_name(dtype: DType, fold: str) -> str:
    return f"rows folded by {fold} {dtype.name}"


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype, op in tile_folds.KINDS:
        yield _name(dtype, op), tile_folds.text(dtype, op)
    for dtype, fold in row_folds.KINDS:
        yield _row_name(dtype, fold), row_folds.text(dtype, fold)


def _one_by_one(terms: Sequence[Any], ufunc: Any) -> Callable[[Any], Any]:
    def fold(a: Any) -> Any:
        out = ufunc(a[terms[0]], a[terms[1]])
        for term in terms[2:]:
            ufunc(out, a[term], out=out)
        return out

    return fold


def _terms(x: Node, axes: Sequence[int]) -> list[tuple[slice, ...]] | None:
    """The elements of few folds over axes with the last one, each as an index that keeps the axes;
    None for others."""
    sizes = [x.shape[a] for a in axes]
    count = math.prod(sizes)
    many = _MANY if len(axes) == 1 else _MANY_WINDOWS
    if x.rank - 1 not in axes or not 2 <= count <= _FEW or x.shape.numel() < count * many:
        return None
    terms = []
    for position in np.ndindex(*sizes):
        at = dict(zip(axes, position))
        terms.append(
            tuple([slice(at.get(i), None if i not in at else at[i] + 1) for i in range(x.rank)])
        )
    return terms


def _rows(x: Node, axes: Sequence[int]) -> tuple[Any, tuple[int, ...], tuple[int, ...]]:
    """(the shape of `x` with the last of `axes` as one, the other axes, the shape of the sum)."""
    first = x.rank
    while first - 1 in axes:
        first -= 1
    shape = (*x.shape[:first], math.prod(x.shape[first:]))
    kept = tuple([1 if i in axes else n for i, n in enumerate(x.shape)])
    return shape, tuple([a for a in axes if a < first]), kept
