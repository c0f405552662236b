"""Sums, norms and softmax of sparse tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import normalize_axes, normalize_axis

from ..functions import reduction
from ..functions.from_data import beside
from ..recording import named_dtype, record
from ..recording.builders import builder
from ..recording.compounds import rule
from . import structure
from .blocks import Blocked, in_layout_of
from .moves import unsqueezed
from .tensors import COO, Compressed, Sparse, as_coo, coo, kind_of

__all__ = ["log_softmax", "softmax", "sum"]


def sum(input: Any, dim: int | Sequence[int] | None = None, dtype: Any = None) -> Any:
    """The sum over `dim`, all dimensions by default. It is dense if all sparse dimensions are
    summed, else sparse; then integers keep their dtype. Gradients have the positions of `input`."""
    if not isinstance(input, COO):
        raise RuntimeError(
            f"sparse.sum expected sparse coordinate tensor layout but got {input.layout}"
            f"{at_user_line()}"
        )
    axes = None if dim is None else normalize_axes(dim, input.dim())
    if dtype is None and axes is not None and not set(range(input.sparse_dim())) <= set(axes):
        dtype = input.dtype
    return _sum(input, axes, False, dtype)


@rule(Sparse, reduction._sum)
def _sum(t: Any, dim: Any, keepdim: bool, dtype: Any) -> Any:
    if dtype is None and not t.dtype.is_differentiable:
        dtype = dtypes.int64
    by: Any = as_coo(t)
    if dtype is not None:
        by = by.to(dtype)
    axes = normalize_axes(dim if dim is None or isinstance(dim, int) else tuple(dim), t.dim())
    if not axes and dim is not None:
        axes = tuple(range(t.dim()))
    dims = by.sparse_dim()
    if isinstance(t, Blocked) and dim is not None:
        raise RuntimeError(
            "Currently the only compressed sparse format supported for sum.dim_IntList is CSR, but "
            f"got layout {kind_of(t.layout)}{at_user_line()}"
        )
    if isinstance(t, Compressed) and not keepdim and len(axes) < t.dim():
        raise RuntimeError(
            "reduction operations on CSR tensors with keepdim=False is unsupported" + at_user_line()
        )
    elements = by._elements
    within = [a - dims + 1 for a in axes if a >= dims]
    if within:
        elements = elements.sum(within)
    kept = [a for a in range(dims) if a not in axes]
    sizes = [t.shape[a] for a in range(t.dim()) if a not in axes]
    if not kept:
        total = elements.sum(0)
        return total if not keepdim else _kept_whole(total, t, axes)
    made = coo(by._at[kept], elements, sizes).coalesce()
    if keepdim:
        for axis in sorted(axes):
            made = unsqueezed(made, axis)
    return in_layout_of(t, made)


def _kept_whole(total: Any, t: Any, axes: Sequence[int]) -> Any:
    """A sum over all sparse dimensions with dimensions of size 1 in their place: a dense one of a
    COO tensor."""
    for axis in sorted(axes):
        total = total.unsqueeze(axis)
    if isinstance(t, COO):
        return total
    made = total.to_sparse(as_coo(t).sparse_dim())
    return in_layout_of(t, made)


@rule(Sparse, reduction._norm)
def _norm(t: Any, p: Any, dim: Any, keepdim: bool) -> Any:
    if dim is not None and dim != ():
        raise NotImplementedError(
            f"norm: a sparse tensor has a norm over all dimensions only{at_user_line()}"
        )
    whole = t.coalesce() if isinstance(t, COO) else t
    made = record(reduction._norm, whole._elements, p, None, False)
    return made.reshape((1,) * t.dim()) if keepdim else made


@rule(Sparse, reduction._any)
def _any(t: Any, dim: Any, keepdim: bool) -> Any:
    if dim is not None:
        raise NotImplementedError(
            f"any: of a sparse tensor over all dimensions only{at_user_line()}"
        )
    return (t.coalesce() if isinstance(t, COO) else t)._elements.any()


@builder("softmax", gradient="SparseSoftmaxBackward0")
def _by_line(values: Node, line: Node, count: int, log: bool) -> Node:
    """Softmax over the elements [nnz, ...] of each of `count` lines."""
    shape = (count, *values.shape[1:])
    least = ops.expand(ops.constant(-math.inf, values.dtype), shape)
    top = ops.gather(ops.scatter(least, ops.detach(values), line, 0, "max"), line, 0)
    shifted = values - ops.where(ops.isinf(top), ops.zeros_like(top), top)
    powers = ops.exp(shifted)
    total = ops.scatter(ops.expand(ops.constant(0, values.dtype), shape), powers, line, 0, "add")
    whole = ops.gather(total, line, 0)
    return shifted - ops.log(whole) if log else powers / whole


def softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """Softmax along `dim` over the elements that are there: a position without one counts as minus
    infinity. Coalesced."""
    return _softmax("softmax", input, dim, dtype, False)


def log_softmax(input: Any, dim: int, *, dtype: Any = None) -> Any:
    """The logarithm of `softmax`."""
    return _softmax("log_softmax", input, dim, dtype, True)


def _softmax(name: str, t: Any, dim: int, dtype: Any, log: bool) -> Any:
    if not isinstance(t, COO):
        raise NotImplementedError(
            f"sparse.{name}: expected a tensor of layout torch.sparse_coo, got {t.layout}: use "
            f"to_sparse_coo(){at_user_line()}"
        )
    whole = t.coalesce()
    if dtype is not None:
        whole = whole.to(named_dtype(dtype))
    axis = normalize_axis(dim, t.dim())
    dims = whole.sparse_dim()
    if axis >= dims:
        values = whole._elements
        made = values.log_softmax(axis - dims + 1) if log else values.softmax(axis - dims + 1)
        return whole._like(made)
    line, count = structure.groups(whole._positions(), whole._sparse_sizes(), axis)
    where = beside(line, whole._elements)
    return whole._like(record(_by_line, whole._elements, where, count, log))
