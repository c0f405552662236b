"""Gaussian elimination and substitution over batches of matrices, in products of blocks.

LAPACK has no batches, and NumPy gives no access to its factors. These are LAPACK's recursive
algorithms (Toledo, "Locality of reference in LU decomposition with partial pivoting", 1997): a
matrix is halved until its blocks are small, and most of the work are products of blocks.
"""

from __future__ import annotations

import math
from typing import Any, Protocol

import numpy as np

_SMALL = 24
"""The columns of a block that is eliminated column by column."""


class Native(Protocol):
    """What the runtime's native code does (`runtime/native/elimination.py`)."""

    def serves(self, a: Any) -> bool: ...

    def lu(self, a: Any) -> tuple[Any, Any, Any]: ...

    def substitutes(self, a: Any, b: Any) -> bool: ...

    def solve_triangular(self, a: Any, b: Any, upper: bool, unit: bool) -> Any: ...


native: Native | None = None
"""The native code, which the runtime tells."""


def lu(a: Any) -> tuple[Any, Any, Any]:
    """P A = L U for a[..., m, n]: (L below the diagonal and U on and above it; int32 pivots, from
    1 on: row i was exchanged with row pivots[i]; int32 info: the first k with U[k, k] zero, or
    0)."""
    if native is not None and native.serves(a):
        return native.lu(a)
    m, n = a.shape[-2:]
    batch = a.shape[:-2]
    work = np.array(a, order="C").reshape(math.prod(batch), m, n)
    pivots = np.empty((len(work), min(m, n)), np.int64)
    info = np.zeros(len(work), np.int32)
    with np.errstate(all="ignore"):
        _eliminate(work, pivots, info, 0)
    return (
        work.reshape(a.shape),
        (pivots + 1).astype(np.int32).reshape(*batch, min(m, n)),
        info.reshape(batch),
    )


def _eliminate(a: Any, pivots: Any, info: Any, first: int) -> None:
    """Factor a[b, m, n] in place. first: the column of the whole matrix where `a` begins."""
    m, n = a.shape[1:]
    if m < n:  # the columns on the right only follow
        _eliminate(a[:, :, :m], pivots, info, first)
        _exchange(a[:, :, m:], pivots)
        substitute(a[:, :, :m], a[:, :, m:], upper=False, unit=True)
        return
    if n <= _SMALL:
        _columns(a, pivots, info, first)
        return
    half = n // 2
    left, right = a[:, :, :half], a[:, :, half:]
    _eliminate(left, pivots[:, :half], info, first)
    _exchange(right, pivots[:, :half])
    substitute(left[:, :half], right[:, :half], upper=False, unit=True)
    right[:, half:] -= left[:, half:] @ right[:, :half]
    _eliminate(right[:, half:], pivots[:, half:], info, first + half)
    _exchange(left[:, half:], pivots[:, half:])
    pivots[:, half:] += half


def _columns(a: Any, pivots: Any, info: Any, first: int) -> None:
    which = np.arange(len(a))
    for j in range(a.shape[2]):
        at = _size(a[:, j:, j]).argmax(1) + j
        pivots[:, j] = at
        row = a[which, at]
        a[which, at] = a[:, j]
        a[:, j] = row
        pivot = row[:, j]
        zero = pivot == 0
        if zero.any():
            info[zero & (info == 0)] = first + j + 1
            pivot = np.where(zero, 1, pivot)
        a[:, j + 1 :, j] /= pivot[:, None]
        a[:, j + 1 :, j + 1 :] -= a[:, j + 1 :, j, None] * row[:, None, j + 1 :]


def _size(x: Any) -> Any:
    """What LAPACK takes for the size of a pivot."""
    return np.abs(x.real) + np.abs(x.imag) if np.iscomplexobj(x) else np.abs(x)


def _exchange(a: Any, pivots: Any) -> None:
    """Exchange the rows of a[b, m, n] in place."""
    if not a.shape[2]:
        return
    order = _permutation(pivots, a.shape[1])
    a[...] = np.take_along_axis(a, order[:, :, None], 1)


def _permutation(pivots: Any, rows: int) -> Any:
    """order[b, rows]: the rows of the matrix before all exchanges, in their order after them."""
    which = np.arange(len(pivots))
    order = np.repeat(np.arange(rows)[None], len(pivots), 0)
    for i in range(pivots.shape[1]):
        at = pivots[:, i]
        order[which, at], order[:, i] = order[:, i].copy(), order[which, at]
    return order


def permutation(pivots: Any, rows: int) -> Any:
    """int64 order[..., rows] such that A[order] = L U, for the pivots of `lu`."""
    *batch, k = pivots.shape
    flat = pivots.reshape(math.prod(batch), k).astype(np.int64) - 1
    return _permutation(flat, rows).reshape(*batch, rows)


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> Any:
    """The x of a @ x = b, for a[..., n, n] of which one triangle is read, and b[..., n, k]. unit:
    whether the diagonal counts as 1."""
    out = np.array(b, order="C")
    n, k = b.shape[-2:]
    if out.size:
        with np.errstate(all="ignore"):
            substitute(a.reshape(-1, n, n), out.reshape(-1, n, k), upper, unit)
    return out


def substitute(a: Any, b: Any, upper: bool, unit: bool) -> None:
    """Overwrite b[batch, n, k] by the solution."""
    n = a.shape[1]
    if n > _SMALL:
        half = n // 2
        first, last = slice(0, half), slice(half, n)
        if upper:
            first, last = last, first
        substitute(a[:, first, first], b[:, first], upper, unit)
        b[:, last] -= a[:, last, first] @ b[:, first]
        substitute(a[:, last, last], b[:, last], upper, unit)
        return
    for i in range(n - 1, -1, -1) if upper else range(n):
        known = slice(i + 1, n) if upper else slice(0, i)
        b[:, i] -= (a[:, i, None, known] @ b[:, known])[:, 0]
        if not unit:
            b[:, i] /= a[:, i, i, None]
