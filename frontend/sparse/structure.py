"""Positions of sparse tensors on the host: sorting, merging, compressing, products.

Positions are arrays int64[dimensions, count] of coordinates. What depends on values of positions
alone is computed here, by NumPy; the elements are then moved by recorded calls.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.ir.location import at_user_line


def numbers(at: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """Each position as one number, in row-major order. RuntimeError if there are too many."""
    if math.prod(sizes) >= 2**63:
        raise RuntimeError(
            f"a tensor of sparse sizes {list(sizes)} has more positions than an int64 can number"
            f"{at_user_line()}"
        )
    found = np.zeros(at.shape[1], np.int64)
    for row, size in zip(at, sizes, strict=True):
        found *= size
        found += row
    return found


def positions(numbers: np.ndarray, sizes: Sequence[int]) -> np.ndarray:
    """The reverse of `numbers`."""
    found = np.empty((len(sizes), numbers.size), np.int64)
    for i in reversed(range(len(sizes))):
        numbers, found[i] = np.divmod(numbers, max(sizes[i], 1))
    return found


def is_merged(at: np.ndarray, sizes: Sequence[int]) -> bool:
    """Whether positions are sorted, and each is there once."""
    if at.shape[1] < 2:
        return True
    own = numbers(at, sizes)
    return bool((own[1:] > own[:-1]).all())


def merged(at: np.ndarray, sizes: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """The sorted positions, each once; and for each given one its place among them."""
    own = numbers(at, sizes)
    order = np.argsort(own, kind="stable")  # which takes runs that are sorted as they are
    own = own[order]
    is_new = np.ones(own.size, bool)
    np.not_equal(own[1:], own[:-1], out=is_new[1:])
    place = np.empty(own.size, np.int64)
    place[order] = np.cumsum(is_new) - 1
    return positions(own[is_new], sizes), place


def pointers(rows: np.ndarray, count: int) -> np.ndarray:
    """Where each of `count` rows begins among sorted rows, and where the last one ends."""
    return np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=count)))).astype(np.int64)


def rows_of(pointers: np.ndarray) -> np.ndarray:
    """The row of each element [*batch, nnz], from where the rows begin [*batch, rows + 1]."""
    *batch, ends = pointers.shape
    rows = np.broadcast_to(np.arange(ends - 1), (*batch, ends - 1))
    return np.repeat(rows.reshape(-1), np.diff(pointers).reshape(-1)).reshape(*batch, -1)


def in_batches(matrices: np.ndarray) -> np.ndarray:
    """The positions of elements by batch and matrix: of matrices[2, *batch, nnz], which has rows
    and columns, [dims + 2, elements]."""
    _, *batch, nnz = matrices.shape
    places = np.indices((*batch, nnz)).reshape(len(batch) + 1, -1)[:-1]
    return np.concatenate([places, matrices.reshape(2, -1)])


def groups(at: np.ndarray, sizes: Sequence[int], axis: int) -> tuple[np.ndarray, int]:
    """The line along `axis` that each position lies on, as a number; and how many lines there
    are."""
    rest = [i for i in range(len(sizes)) if i != axis]
    own = numbers(at[rest], [sizes[i] for i in rest])
    found, line = np.unique(own, return_inverse=True)
    return line.reshape(-1).astype(np.int64, copy=False), found.size


def common(
    a: np.ndarray, b: np.ndarray, sizes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The positions that are in both of two merged sets, and their places in each."""
    both, in_a, in_b = np.intersect1d(
        numbers(a, sizes), numbers(b, sizes), assume_unique=True, return_indices=True
    )
    return positions(both, sizes), in_a.astype(np.int64), in_b.astype(np.int64)


def found_in(
    wanted: np.ndarray, own: np.ndarray, sizes: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """For each position of `wanted`: a place in the merged positions `own`, and whether it is
    there."""
    target, table = numbers(wanted, sizes), numbers(own, sizes)
    place = np.minimum(np.searchsorted(table, target), max(table.size - 1, 0))
    exists = table[place] == target if table.size else np.zeros(target.size, bool)
    return np.where(exists, place, 0).astype(np.int64), exists


def matches(left: np.ndarray, right: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of places with left[i] == right[j], which are below `count`, sorted by i."""
    order = np.argsort(right, kind="stable")
    begin = pointers(right[order], count)
    times = (begin[1:] - begin[:-1])[left]
    first = np.repeat(np.arange(left.size), times)
    within = np.arange(first.size) - np.repeat(np.cumsum(times) - times, times)
    second = order[np.repeat(begin[:-1][left], times) + within]
    return first.astype(np.int64, copy=False), second.astype(np.int64, copy=False)
