"""The functions that emitted code calls besides NumPy."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from tilewright.ir.numeric.blas import matmul

from .philox import philox

__all__ = [
    "arg_extreme",
    "blas",
    "check",
    "fold",
    "logsumexp",
    "matmul",
    "overlap_add",
    "philox",
    "products_of_rows",
    "products_of_segments",
    "sort_positions",
    "sum_rows",
    "update",
    "update_rows",
    "wrapped",
]


def check(index: Any, size: int, error: Any, mask: Any = None) -> Any:
    """`index`, after a check that all its elements (where `mask` holds) are in 0 <= index < size.
    If one is not, error(value) is raised.

    With a mask the other elements are brought into range: nothing is read through them.
    """
    if index.size == 0:
        return index
    if index.min() >= 0 and index.max() < size:
        return index
    bad = (index < 0) | (index >= size)
    if mask is not None:
        bad = bad & mask
    if bad.any():
        raise error(int(np.broadcast_to(index, bad.shape)[bad][0]))
    return np.clip(index, 0, max(size - 1, 0))


def blas(x: Any) -> Any:
    """A stack of matrices as BLAS takes it: one of the last two dimensions is dense."""
    item = x.itemsize
    rows, columns = x.strides[-2:]
    m, n = x.shape[-2:]
    if (columns == item and (rows >= n * item or m <= 1)) or (n <= 1 and rows == item):
        return x
    if rows == item and (columns >= m * item or n <= 1):
        return x
    return np.ascontiguousarray(x)


def arg_extreme(function: Any, x: Any, kept: int) -> Any:
    """Row-major position of the first extreme over the dimensions from `kept` on."""
    shape = (*x.shape[:kept], *[1] * (x.ndim - kept))
    if x.size == 0:
        return np.zeros(shape, dtype=np.int64)
    flat = x.reshape(*x.shape[:kept], -1)
    return function(flat, axis=-1).reshape(shape)


def wrapped(value: int, kind: Any) -> int:
    """A Python int, wrapped into the range of an integer type."""
    limits = np.iinfo(kind)
    return (int(value) - limits.min) % (limits.max - limits.min + 1) + limits.min


def fold(ufunc: Any, x: Any, dims: tuple[int, ...]) -> Any:
    """ufunc.reduce over a few elements, in row-major order."""
    place: list[Any] = [slice(None)] * x.ndim
    out = None
    for at in itertools.product(*(range(x.shape[d]) for d in dims)):
        for d, i in zip(dims, at):
            place[d] = slice(i, i + 1)
        part = x[tuple(place)]
        out = part.copy() if out is None else ufunc(out, part, out=out)
    return out


def sum_rows(x: Any, axis: int, dtype: Any) -> Any:
    """The sum over an axis that is not dense in memory. NumPy would add one row after another, so
    blocks are summed first, and then their sums."""
    count = x.shape[axis]
    block = math.isqrt(count)
    whole = count // block * block
    place: list[Any] = [slice(None)] * x.ndim
    place[axis] = slice(0, whole)
    shape = (*x.shape[:axis], whole // block, block, *x.shape[axis + 1 :])
    parts = np.add.reduce(x[tuple(place)].reshape(shape), axis=axis + 1, dtype=dtype)
    out = np.add.reduce(parts, axis=axis, keepdims=True, dtype=dtype)
    if whole < count:
        place[axis] = slice(whole, count)
        out += np.add.reduce(x[tuple(place)], axis=axis, keepdims=True, dtype=dtype)
    return out


def overlap_add(out: Any, parts: Any, moves: Any) -> None:
    """Adds parts to their places; the places may overlap."""
    for to, source in moves:
        place = out[to]
        np.add(place, parts[source], out=place)


def sort_positions(x: Any, axis: int, descending: bool) -> Any:
    """Stable argsort; NaN counts as the largest."""
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis=axis, kind="stable")
    return x.shape[axis] - 1 - np.flip(flipped, axis)


_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def update(buffer: Any, positions: Any, value: Any, mode: str) -> None:
    """Combines value into the elements of a buffer, one after another in row-major order."""
    flat = buffer.reshape(-1)
    shape = np.broadcast_shapes(positions.shape, np.shape(value))
    at = np.broadcast_to(positions, shape).reshape(-1)
    value = np.broadcast_to(value, shape).reshape(-1)
    if mode == "set":
        flat[at] = value
        return
    half = flat.dtype.itemsize == 2 and flat.dtype.kind in "fV"
    wide = flat.astype(np.float32) if half else flat
    _UFUNC[mode].at(wide, at, value.astype(wide.dtype, copy=False))
    if half:
        flat[...] = wide


def update_rows(memory: Any, position: Any, value: Any, mode: str) -> None:
    """Combines rows into those of `memory` at `position`, one after another."""
    at = position.reshape(-1)
    if at.size == 0:
        return
    rows = memory.reshape(len(memory), -1)
    value = value.reshape(at.size, -1)
    if mode == "set":
        rows[at] = value
        return
    half = rows.dtype.itemsize == 2 and rows.dtype.kind in "fV"
    wide = rows.astype(np.float32) if half else rows
    value = value.astype(wide.dtype, copy=False)
    ufunc = _UFUNC[mode]
    order = np.argsort(at, kind="stable")
    at = at[order]
    first = np.flatnonzero(np.concatenate(([True], at[1:] != at[:-1])))
    count = np.diff(np.append(first, at.size))
    most = int(count.max())
    if most <= len(first):
        # In rounds: the first value for each position, then the second for each, ...
        for turn in range(most):
            here = first[count > turn] + turn
            place = at[here]
            wide[place] = ufunc(wide[place], value[order[here]])
    else:
        for begin, size in zip(first, count):
            place = at[begin]
            held = np.concatenate((wide[place : place + 1], value[order[begin : begin + size]]))
            # NumPy folds rows one after another, but numbers in a column by pairs.
            in_order = held.shape[1] > 1
            wide[place] = ufunc.reduce(held) if in_order else ufunc.accumulate(held)[-1]
    if half:
        rows[...] = wide


def logsumexp(x: np.ndarray, dims: tuple[int, ...]) -> np.ndarray:
    """log(sum(exp(x))) over `dims`, which stay with size 1; -inf where all elements are -inf."""
    top = np.maximum.reduce(x, axis=dims, keepdims=True)
    shift = np.where(np.isneginf(top), 0, top).astype(x.dtype, copy=False)
    return shift + np.log(np.add.reduce(np.exp(x - shift), axis=dims, keepdims=True))


def products_of_rows(a: Any, b: Any, first: Any, stop: Any) -> Any:
    """[1, M, N]: the rows first[i] <= m < stop[i] of a[1, M, K] times b[i, K, N]; other rows 0."""
    out = np.zeros((1, a.shape[1], b.shape[2]), a.dtype)
    for matrix, i, j in zip(b, first.ravel(), stop.ravel()):
        np.matmul(a[0, i:j], matrix, out=out[0, i:j])
    return out


def products_of_segments(a: Any, b: Any, first: Any, stop: Any) -> Any:
    """[G, M, N]: a[1, M, K] times b[1, K, N], summed over first[i] <= k < stop[i]."""
    out = np.empty((first.size, a.shape[1], b.shape[2]), a.dtype)
    for product, i, j in zip(out, first.ravel(), stop.ravel()):
        np.matmul(a[0, :, i:j], b[0, i:j], out=product)
    return out
