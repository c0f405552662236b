"""Sorting by NumPy, which has no fast sort that is stable: what is sorted tells where it was.

An element becomes a word, its key above its position. No two words are equal, so any sort of them
is stable. Where few leading positions are read, the elements that come before the others are found
by a partition, and they alone are sorted.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.node import Node
from tilewright.ir.ops.scan import positions_in_order

Form = Callable[..., Any]

_FROM = 512
"""Elements from which a sort of words is faster."""

FEW = 4
"""The part of a row that is partitioned off, at most: one in so many elements."""

_SIGN, _LAST = np.uint32(1 << 31), np.uint32((1 << 32) - 1)


def order(node: Node) -> Form:
    """The form of `argsort`: positions in the stable order, NaN as the largest."""
    axis, descending = node.attrs

    def form(x: Any) -> Any:
        x = np.asarray(x)
        return np.swapaxes(positions(np.swapaxes(x, axis, -1), descending), axis, -1)

    return form


def leading(node: Node, count: int) -> Form:
    """As `order`, only the first `count` positions of each row, which are few."""
    axis, descending = node.attrs

    def form(x: Any) -> Any:
        rows = np.swapaxes(np.asarray(x), axis, -1)
        return np.swapaxes(first(rows, count, descending), axis, -1)

    return form


def first(x: Any, count: int, descending: bool) -> Any:
    """The first `count` positions in order along the last axis, which are few."""
    found = _first(x, count, descending)
    return positions(x, descending)[..., :count] if found is None else found


def positions(x: Any, descending: bool) -> Any:
    """The positions in order along the last axis."""
    if x.size < _FROM or x.shape[-1] > _LAST:
        return positions_in_order(x, -1, descending)
    keys = _keys(x)
    if keys is None:
        return _wide_positions(x, descending)
    words = (~keys if descending else keys).astype(np.uint64)
    words <<= np.uint64(32)
    words |= np.arange(x.shape[-1], dtype=np.uint64)
    words.sort(-1)
    words &= np.uint64(_LAST)
    return words.view(np.int64)


def _wide_positions(x: Any, descending: bool) -> Any:
    """The positions in order of elements of 64 bits. NumPy's sort that isn't stable takes a quarter
    of the time of the other one, which rows with equal elements or NaN need."""
    found = x.argsort(-1)
    ordered = np.take_along_axis(x, found, -1)
    others = ~(ordered[..., 1:] > ordered[..., :-1]).all(-1)
    if descending:
        found = np.ascontiguousarray(found[..., ::-1])
    if others.any():
        found[others] = positions_in_order(x[others], -1, descending)
    return found


def _keys(x: Any) -> Any:
    """Words of 32 bits in the order of the elements; None where 64 bits are needed."""
    kind, bits = x.dtype.kind, 8 * x.itemsize
    if (kind == "f" and bits <= 32) or kind == "V":
        x = x.astype(np.float32) + np.float32(0)  # both zeros are alike
        plain = x.view(np.uint32)
        keys = plain ^ ((x.view(np.int32) >> 31).view(np.uint32) | _SIGN)
        keys[np.isnan(x)] = _LAST
        return keys
    if kind == "i" and bits == 64:
        low, high = int(x.min()), int(x.max())
        return (x - low).astype(np.uint32) if high - low <= _LAST else None
    if kind == "i":
        return x.astype(np.int32).view(np.uint32) ^ _SIGN
    return x.astype(np.uint32) if kind in "bu" and bits <= 32 else None


def _first(x: Any, count: int, descending: bool) -> Any:
    """The first `count` positions in order along the last axis. None if NaN is among the elements
    that come first."""
    size = x.shape[-1]
    if x.dtype.kind not in "fiuV" or not 0 < count < size or not x.size:
        return None
    if x.itemsize < 4 and x.dtype.kind not in "iu":
        x = x.astype(np.float32)  # in which NumPy orders halves in vectors
    elif x.itemsize == 1:
        x = x.astype(np.int16)  # and bytes
    place = size - count if descending else count - 1
    last = np.partition(x, place, -1)[..., place : place + 1]
    comes = x >= last if descending else x <= last
    # A position in all rows takes a tenth of the time of its row and its place there.
    found, rows = np.flatnonzero(comes), math.prod(x.shape[:-1])
    if len(found) > rows * count:
        found = _without_late(found, x, last, count)
    if len(found) != rows * count:
        return None
    at: Any = found.reshape(rows, count)
    at -= np.arange(0, rows * size, size)[:, None]
    if at[:, 0].min() < 0 or at[:, -1].max() >= size:  # NaN leaves a row too few
        return None
    at = at.reshape(*x.shape[:-1], count)
    inner = positions_in_order(np.take_along_axis(x, at, -1), -1, descending)
    return np.take_along_axis(at, inner, -1)


def _without_late(found: Any, x: Any, last: Any, count: int) -> Any:
    """The positions `found` without those of elements that equal the last one of a row, after the
    first ones, so that `count` are left in each."""
    size = x.shape[-1]
    row = found // size
    equal = x.reshape(-1)[found] == last.reshape(-1)[row]
    rows = len(last.reshape(-1))
    wanted = count - np.bincount(row[~equal], minlength=rows)
    at = row[equal]
    firsts = np.searchsorted(at, np.arange(rows))
    kept = ~equal
    kept[equal] = np.arange(len(at)) - firsts[at] < wanted[at]
    return found[kept]
