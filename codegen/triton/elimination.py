"""Prelude, part four: small matrices, each of which a program holds in one tile of N x N.

Rows and columns are taken out of a tile by sums of what is not masked, so nothing is indexed: a
step reads and writes the whole tile in registers. Beyond a matrix of n x n a tile holds zeros. A
matrix without a result gives NaN and `info`, as LAPACK numbers it.
"""

import triton
import triton.language as tl


@triton.jit
def tw_row(x, k):
    """Row k of a tile."""
    at = tl.arange(0, x.shape[0])[:, None]
    return tl.sum(tl.where(at == k, x, 0), axis=0, keep_dims=True)


@triton.jit
def tw_column(x, k):
    """Column k of a tile."""
    at = tl.arange(0, x.shape[1])[None, :]
    return tl.sum(tl.where(at == k, x, 0), axis=1, keep_dims=True)


@triton.jit
def tw_element(column, k):
    """Element k of a column, as a number."""
    at = tl.arange(0, column.shape[0])[:, None]
    return tl.sum(tl.where(at == k, column, 0))


@triton.jit
def tw_factor(a, n):
    """(L, info) of the lower triangle of a tile, by columns (Cholesky)."""
    i = tl.arange(0, a.shape[0])[:, None]
    j = tl.arange(0, a.shape[1])[None, :]
    info = tl.full((), 0, tl.int32)
    for k in range(n):
        column = tw_column(a, k)
        pivot = tw_element(column, k)
        refused = (pivot <= 0) | (pivot != pivot)
        info = tl.where((info == 0) & refused, k + 1, info)
        root = tl.sqrt(pivot)
        column = tl.where(i > k, column / root, tl.where(i == k, root, 0))
        a = tl.where(j > k, a - column * tl.trans(column), tl.where(j == k, column, a))
    out = tl.where(i >= j, a, 0)
    return tl.where(info != 0, float("nan"), out), info


@triton.jit
def tw_substitute(a, b, n, UPPER: tl.constexpr, UNIT: tl.constexpr):
    """x with a @ x = b, for one triangle of a tile, whose diagonal may count as 1."""
    i = tl.arange(0, a.shape[0])[:, None]
    for step in range(n):
        k = step
        if UPPER:
            k = n - 1 - step
        column = tw_column(a, k)
        row = tw_row(b, k)
        if not UNIT:
            row = row / tw_element(column, k)
        if UPPER:
            left = i < k
        else:
            left = i > k
        b = tl.where(i == k, row, tl.where(left, b - column * row, b))
    return b


@triton.jit
def tw_solve(a, b, n):
    """(x, info) with a @ x = b, by elimination with the largest pivot of each column."""
    i = tl.arange(0, a.shape[0])[:, None]
    info = tl.full((), 0, tl.int32)
    for k in range(n):
        column = tw_column(a, k)
        size = tl.where((i >= k) & (i < n), tl.abs(column), -1)
        best = tl.min(tl.where(size == tl.max(size), i, n))
        best = tl.minimum(best, n - 1)  # if all are NaN
        above, below = tw_row(a, k), tw_row(a, best)
        a = tl.where(i == k, below, tl.where(i == best, above, a))
        first, second = tw_row(b, k), tw_row(b, best)
        b = tl.where(i == k, second, tl.where(i == best, first, b))
        column = tw_column(a, k)
        pivot = tw_element(column, k)
        info = tl.where((info == 0) & (pivot == 0), k + 1, info)
        factor = tl.where(i > k, column / pivot, 0)
        a = a - factor * below
        b = b - factor * second
    x = tw_substitute(a, b, n, True, False)
    return tl.where(info != 0, float("nan"), x), info


@triton.jit
def tw_reflect(a, steps):
    """(Q, R) of a tile, by Householder's reflections with LAPACK's signs. steps: the lesser of its
    matrix's sides."""
    i = tl.arange(0, a.shape[0])[:, None]
    j = tl.arange(0, a.shape[1])[None, :]
    q = (i == tl.arange(0, a.shape[0])[None, :]).to(a.dtype)
    for k in range(steps):
        column = tl.where(i >= k, tw_column(a, k), 0)
        top = tl.max(tl.abs(column))
        v = column / tl.where(top == 0, 1, top)  # so that no square overflows
        head = tw_element(v, k)
        rest = tl.sum(tl.where(i > k, v * v, 0))
        norm = tl.sqrt(head * head + rest)
        v = tl.where(i == k, head + tl.where(head < 0, -norm, norm), v)
        factor = tl.where(rest == 0, 0, 2 / tl.sum(v * v))
        a = a - factor * v * tl.sum(v * a, axis=0, keep_dims=True)
        turned = tl.trans(v)
        q = q - factor * tl.sum(q * turned, axis=1, keep_dims=True) * turned
    return q, tl.where(i <= j, a, 0)


@triton.jit
def tw_lu(a, rows, steps):
    """(L below the diagonal and U, pivots from 1 on, info) of a tile, by the largest pivot of each
    column. steps: the lesser of its matrix's sides, as long as the column of pivots."""
    i = tl.arange(0, a.shape[0])[:, None]
    j = tl.arange(0, a.shape[1])[None, :]
    info = tl.full((), 0, tl.int32)
    pivots = tl.full((a.shape[0], 1), 0, tl.int32)
    for k in range(steps):
        column = tw_column(a, k)
        size = tl.where((i >= k) & (i < rows), tl.abs(column), -1)
        best = tl.minimum(tl.min(tl.where(size == tl.max(size), i, rows)), rows - 1)
        pivots = tl.where(i == k, best + 1, pivots)
        above, below = tw_row(a, k), tw_row(a, best)
        a = tl.where(i == k, below, tl.where(i == best, above, a))
        column = tw_column(a, k)
        pivot = tw_element(column, k)
        info = tl.where((info == 0) & (pivot == 0), k + 1, info)
        factor = tl.where(i > k, column / tl.where(pivot == 0, 1, pivot), 0)
        later = tl.where(j > k, a - factor * below, tl.where(j == k, factor, a))
        a = tl.where(i > k, later, a)
    return a, pivots, info


@triton.jit
def tw_exchange(pivots, steps):
    """The order of rows after each row k was exchanged with row pivots[k], counted from 1."""
    i = tl.arange(0, pivots.shape[0])[:, None]
    order = i
    for k in range(steps):
        other = tw_element(pivots, k) - 1
        first, second = tw_element(order, k), tw_element(order, other)
        order = tl.where(i == k, second, tl.where(i == other, first, order))
    return order.to(tl.int64)
