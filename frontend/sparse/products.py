"""Products with sparse matrices: by gathering rows of the dense factor and adding them up.

The gradient of the dense factor is the same with rows and columns exchanged; that of an element is
the product of a row and a row. So all of them are graph, and a GPU computes them too.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions import products
from ..functions.call import public
from ..functions.from_data import beside
from ..functions.promotion import to
from ..nn.functional.linear import _linear as affine
from ..recording import Handle, record
from ..recording.builders import LOWER, builder
from ..recording.compounds import rule
from . import blocks, structure
from .blocks import Blocked, in_layout_of
from .elementwise import _is_number, summed
from .tensors import (
    COO,
    Compressed,
    Sparse,
    _merged,
    as_coo,
    coo_at,
    is_sparse,
    rows_at,
    to_compressed,
)


@builder("mm", gradient="SparseAddmmBackward0", casts=LOWER)
def _times(values: Node, dense: Node, at: Node, count: int) -> Node:
    """The sparse matrix [count, k] with elements `values` [nnz] at positions at[2, nnz], int32 or
    int64, times dense[k, m]."""
    each = (ops.reshape(ops.slice_axis(at, 0, i, i + 1), values.shape) for i in (0, 1))
    rows, columns = (to(places, int64) for places in each)
    if values.dtype is not dense.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {values.dtype} != {dense.dtype}"
            f"{at_user_line()}"
        )
    zeros = ops.expand(ops.constant(0, values.dtype), (count, dense.shape[1]))
    terms = ops.unsqueeze(values, 1) * ops.gather(dense, columns, 0)
    return ops.scatter(zeros, terms, rows, 0, "add")


def _need_matrix(name: str, t: Any) -> COO:
    found = as_coo(t)
    if t.dim() != 2 or found.sparse_dim() != 2:
        raise RuntimeError(
            f"{name}: expected a sparse matrix with 2 sparse dimensions and no dense one, got "
            f"{found.sparse_dim()} sparse and {found.dense_dim()} dense dimensions{at_user_line()}"
        )
    return found


def _need_inner(a: Any, b: Any) -> None:
    if a.shape[-1] != b.shape[-2 if b.dim() > 1 else 0]:
        raise RuntimeError(
            f"matmul: inner sizes differ: {tuple(a.shape)} @ {tuple(b.shape)}{at_user_line()}"
        )


def times_dense(sparse: Any, dense: Any) -> Any:
    """A sparse matrix times a dense matrix or vector."""
    if dense.dim() == 1:
        return times_dense(sparse, dense.unsqueeze(1)).squeeze(1)
    by = _need_matrix("mm", sparse)
    _need_inner(sparse, dense)
    if isinstance(sparse, Blocked):
        return blocks.times_dense(sparse, dense)
    return record(_times, by._elements, dense, by._near(), int(sparse.shape[0]))


def dense_times(dense: Any, sparse: Any) -> Any:
    """A dense matrix or vector times a sparse matrix."""
    if dense.dim() == 1:
        return dense_times(dense.unsqueeze(0), sparse).squeeze(0)
    _need_inner(dense, sparse)
    turned = sparse.t() if isinstance(sparse, Blocked) else as_coo(sparse).t()
    return times_dense(turned, dense.t()).t()


def times_sparse(a: Any, b: Any) -> Any:
    """The product of two sparse matrices, in the first one's layout; by rows if that is by
    columns."""
    _need_inner(a, b)
    left, right = _need_matrix("mm", a).coalesce(), _need_matrix("mm", b).coalesce()
    if left.dtype is not right.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}"
            f"{at_user_line()}"
        )
    p, q = left._positions(), right._positions()
    i, j = structure.matches(p[1], q[0], int(a.shape[1]))
    sizes = (int(a.shape[0]), int(b.shape[1]))
    at, place = structure.merged(np.stack([p[0][i], q[1][j]]), sizes)
    terms = rows_at(left._elements, i) * rows_at(right._elements, j)
    elements = record(_merged, terms, beside(place, terms), at.shape[1])
    found = coo_at(at, elements, sizes)
    if isinstance(a, Compressed):
        return to_compressed(found, by_rows=True)
    return in_layout_of(a, found)


def product(a: Any, b: Any) -> Any:
    """a @ b, of which at least one is sparse."""
    if a.dim() > 2 or b.dim() > 2:
        return _batched(a, b)
    if is_sparse(a):
        return times_sparse(a, b) if is_sparse(b) else times_dense(a, b)
    return dense_times(a, b)


def _batched(a: Any, b: Any) -> Any:
    """A batch of products, as one product with a matrix of blocks on the diagonal."""
    *batch, rows, inner = a.shape
    if not is_sparse(a) or is_sparse(b) or [*b.shape[:-2]] != batch or not batch:
        raise NotImplementedError(
            "bmm: expected a sparse tensor and a dense one of 3 dimensions, of one batch, got "
            f"{list(a.shape)} and {list(b.shape)}{at_user_line()}"
        )
    by = as_coo(a)
    if by.sparse_dim() != a.dim():
        raise RuntimeError(f"bmm_sparse: Tensor 'self' must have 3 sparse dims{at_user_line()}")
    _need_inner(a, b)
    at, count = np.stack(_in_line(by)), math.prod(batch)
    flat = coo_at(at, by._elements, (count * rows, count * inner), False)
    wide = b.reshape(count * inner, b.shape[-1])
    return times_dense(flat, wide).reshape(*batch, rows, b.shape[-1])


def _in_line(by: COO) -> tuple[np.ndarray, np.ndarray]:
    """The row and the column of each element, as numbers of those of all matrices of a batch."""
    own, sizes = by._positions(), by._sparse_sizes()
    columns = structure.numbers(np.delete(own, -2, 0), (*sizes[:-2], sizes[-1]))
    return structure.numbers(own[:-1], sizes[:-1]), columns


@rule(Sparse, products._matmul, products._mv)
def _matmul(a: Any, b: Any) -> Any:
    return product(a, b)


@rule(Sparse, affine)
def _linear(x: Any, weight: Any, *bias: Any) -> Any:
    made = product(x, weight.t())
    return made + bias[0] if bias else made


def _scaled(t: Any, factor: Any) -> Any:
    return (
        t if _is_number(factor) and not isinstance(factor, Handle) and factor == 1 else t * factor
    )


@rule(Sparse, products._addmm, products._addmv)
def _added(c: Any, a: Any, b: Any, beta: Any, alpha: Any) -> Any:
    """beta c + alpha a @ b."""
    made = _scaled(product(a, b), alpha)
    if not isinstance(beta, Handle) and beta == 0:
        return made
    addend = _scaled(c, beta)
    if is_sparse(made) or not is_sparse(addend):
        return summed(addend, made) if is_sparse(made) or is_sparse(addend) else addend + made
    return summed(made, addend)


def mm(mat1: Any, mat2: Any, reduce: str | None = None) -> Any:
    """The product of two matrices, of which at least one is sparse: sparse if both are.

    The gradient of a sparse factor has its positions. reduce: "sum", the usual one; "mean", "amax"
    (also "max") and "amin" ("min") combine the terms of each element in another way (CSR times
    dense only).
    """
    if reduce in (None, "sum"):
        return products.mm(mat1, mat2)
    return _reduced(mat1, mat2, reduce)


def _reduced(a: Any, b: Any, how: str) -> Any:
    how = {"max": "amax", "min": "amin"}.get(how, how)
    if how not in ("mean", "amax", "amin"):
        raise RuntimeError(
            f"sparse.mm: reduce must be sum, mean, amax or amin, got {how!r}{at_user_line()}"
        )
    if not isinstance(a, Compressed) or is_sparse(b):
        raise RuntimeError(
            f"sparse.mm: reduce={how!r} expects a CSR matrix and a dense one{at_user_line()}"
        )
    _need_inner(a, b)
    by = as_coo(a)
    terms = a._elements.unsqueeze(1) * b.index_select(0, by._at[1])
    zeros = terms.new_zeros((a.shape[0], b.shape[1]))
    return zeros.index_reduce(0, by._at[0], terms, how, include_self=False)


def addmm(mat: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0) -> Any:
    """beta mat + alpha mat1 @ mat2, with a sparse mat1."""
    return products.addmm(mat, mat1, mat2, beta=beta, alpha=alpha)


saddmm = addmm


def sampled_addmm(
    input: Any, mat1: Any, mat2: Any, *, beta: float = 1.0, alpha: float = 1.0, out: Any = None
) -> Any:
    """alpha (mat1 @ mat2) at the positions of `input`, a CSR matrix, plus beta input."""
    if not isinstance(input, Compressed):
        raise RuntimeError(
            f"sampled_addmm: Expected self to have sparse csr layout, but got {input.layout}"
            f"{at_user_line()}"
        )
    _need_inner(mat1, mat2)
    shape = [*mat1.shape[:-1], mat2.shape[-1]]
    if shape != list(input.shape) or mat1.shape[:-2] != mat2.shape[:-2]:
        raise RuntimeError(
            f"sampled_addmm: expected a product of shape {list(input.shape)}, got that of "
            f"{list(mat1.shape)} and {list(mat2.shape)}{at_user_line()}"
        )
    by = as_coo(input)
    inner = mat1.shape[-1]
    rows, columns = (
        by._at if mat1.dim() == 2 else [beside(x, input._elements) for x in _in_line(by)]
    )
    left = mat1.reshape(-1, inner).index_select(0, rows)
    terms = (left * mat2.mT.reshape(-1, inner).index_select(0, columns)).sum(1)
    terms = terms.reshape(input._elements.shape)
    made = input._like(_scaled(terms, alpha) + _scaled(input._elements, beta))
    return made if out is None else out.copy_(made)


def spmm(input: Any, mat2: Any) -> Any:
    """The product of a sparse matrix and a dense one."""
    return products.mm(input, mat2)


dsmm = spmm


def hspmm(mat1: Any, mat2: Any, *, out: Any = None) -> Any:
    """A sparse matrix times a dense one, as a tensor with one sparse dimension: rows of the
    product that have elements."""
    by = _need_matrix("hspmm", mat1).coalesce()
    _need_inner(mat1, mat2)
    rows, place = np.unique(by._positions()[0], return_inverse=True)
    at = np.stack([place.reshape(-1), by._positions()[1]])
    inner = coo_at(at, by._elements, (rows.size, int(mat1.shape[1])))
    made = coo_at(rows[None], times_dense(inner, mat2), (int(mat1.shape[0]), int(mat2.shape[1])))
    return made if out is None else out.copy_(made)


@public("sspaddmm")
def sspaddmm(
    input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1, out: Any = None
) -> Any:
    """beta input + alpha mat1 @ mat2, all sparse but mat2; sparse."""
    made = _sparse_rows(mat1, mat2)
    found = summed(_scaled(input, beta), _scaled(made, alpha)).coalesce()
    return found if out is None else out.copy_(found)


@public("smm")
def smm(input: Any, mat: Any) -> Any:
    """A sparse matrix times a dense one, as a sparse matrix."""
    return _sparse_rows(input, mat)


def _sparse_rows(a: Any, b: Any) -> Any:
    """The product of a sparse and a dense matrix, with an element wherever a row has any."""
    by = hspmm(a, b)
    rows, width = by._positions()[0], int(b.shape[1])
    at = np.stack([np.repeat(rows, width), np.tile(np.arange(width), rows.size)]).astype(np.int64)
    return coo_at(at, by._elements.reshape(-1), by._sizes)
