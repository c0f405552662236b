"""Norms of vectors and matrices, as in torch.linalg."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import normalize_axis

from ..functions import reduction
from ..functions.arguments import into
from ..functions.spellings import also_named, by_numpys_names
from ..recording import named_dtype
from .decompositions import svdvals

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor


@by_numpys_names
@also_named(input="x")
def vector_norm(
    x: Tensor,
    ord: float = 2,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of the elements over `dim` (all of them by default) as one vector.

    ord: a number; 0 counts the elements that aren't zero, inf and -inf give the largest and the
    smallest magnitude. dtype: the dtype to which `x` is converted first.
    """
    dtype = _check(x, dtype, "vector_norm")
    x = x if dtype is None else x.to(dtype)
    dims = tuple(dim) if isinstance(dim, (tuple, list)) else dim
    dims = None if dims == () else dims
    axes = range(x.dim()) if dims is None else ((dims,) if isinstance(dims, int) else dims)
    if x.dim() and (ord < 0 or ord == math.inf) and any(x.shape[a] == 0 for a in axes):
        raise RuntimeError(
            f"linalg.vector_norm cannot compute the {float(ord)} norm on an empty tensor along "
            f"dimensions of no elements, as the operation does not have an identity{at_user_line()}"
        )
    return into(out, reduction.norm(x, float(ord), dims, keepdim), cast=False)


@by_numpys_names
@also_named(input="A")
def matrix_norm(
    A: Tensor,
    ord: float | str = "fro",
    dim: Sequence[int] = (-2, -1),
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The norm of matrices whose rows and columns lie along the two dimensions `dim`.

    ord: 'fro'; 1 or -1, the largest or smallest sum of magnitudes in a column; inf or -inf, the
    same in a row; 'nuc', the sum of the singular values; 2 or -2, the largest or smallest one.
    """
    dtype = _check(A, dtype, "matrix_norm")
    if ord not in ("fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf):
        raise RuntimeError(f"linalg.matrix_norm: Order {ord} not supported.{at_user_line()}")
    if A.dim() < 2:
        raise RuntimeError(
            "linalg.matrix_norm: The input tensor A must have at least 2 dimensions."
            f"{at_user_line()}"
        )
    if not isinstance(dim, (tuple, list)) or len(dim) != 2:
        raise RuntimeError(f"linalg.matrix_norm: dim must be a 2-tuple. Got {dim}{at_user_line()}")
    row, column = (normalize_axis(d, A.dim()) for d in dim)
    if row == column:
        raise RuntimeError(f"linalg.matrix_norm: dims must be different. Got {dim}{at_user_line()}")
    x = A if dtype is None else A.to(dtype)
    if ord == "fro":
        return into(out, reduction.norm(x, 2.0, (row, column), keepdim), cast=False)
    if ord in ("nuc", 2, -2):
        if ord == 2 and 0 in (x.shape[row], x.shape[column]):
            return into(out, reduction.norm(x, 2.0, (row, column), keepdim), cast=False)
        s = svdvals(x.movedim((row, column), (-2, -1)))
        found = s.sum(-1) if ord == "nuc" else s.amax(-1) if ord == 2 else s.amin(-1)
        if keepdim:
            for axis in sorted((row, column)):
                found = found.unsqueeze(axis)
        return into(out, found, cast=False)
    assert not isinstance(ord, str)
    within, over = (row, column) if abs(ord) == 1 else (column, row)
    if ord > 0 and not x.shape[over]:  # the largest of no sums is 0
        found = x.abs().sum((row, column), keepdim=True)
        return into(out, found if keepdim else found.squeeze((row, column)), cast=False)
    sums = x.abs().sum(within, keepdim=True)
    found = sums.amax(over, keepdim=True) if ord > 0 else sums.amin(over, keepdim=True)
    return into(out, found if keepdim else found.squeeze((row, column)), cast=False)


@by_numpys_names
@also_named(input="A")
def norm(
    A: Tensor,
    ord: float | str | None = None,
    dim: int | Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
) -> Tensor:
    """`vector_norm` over one dimension, or `matrix_norm` over two.

    With `ord` and without `dim`, the input must be a vector or matrix. Without both, all elements
    are taken as one vector.
    """
    options: dict[str, Any] = {"dtype": dtype, "out": out}
    dims = (dim,) if isinstance(dim, int) else dim
    if ord is None and dims is None:
        return vector_norm(A, 2, dims, keepdim, **options)
    if dims is None and A.dim() not in (1, 2):
        raise RuntimeError(
            "linalg.norm: If dim is not specified but ord is, the input must be 1D or 2D. Got "
            f"{A.dim()}D.{at_user_line()}"
        )
    if dims is not None and len(dims) not in (1, 2):
        raise RuntimeError(
            f"linalg.norm: If dim is specified, it must be of length 1 or 2. Got {list(dims)}"
            f"{at_user_line()}"
        )
    if ord is None:
        return vector_norm(A, 2, dims, keepdim, **options)
    is_vector = (A.dim() if dims is None else len(dims)) == 1
    if is_vector and not isinstance(ord, str):
        return vector_norm(A, ord, dims, keepdim, **options)
    return matrix_norm(A, ord, (-2, -1) if dims is None else dims, keepdim, **options)


def _check(x: Any, dtype: Any, name: str) -> DType | None:
    """The dtype in which the norm is computed, None for that of `x`."""
    dtype = None if dtype is None else named_dtype(dtype)
    if not x.dtype.is_differentiable:
        raise RuntimeError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {x.dtype}"
            f"{at_user_line()}"
        )
    if dtype is not None and not dtype.is_differentiable:
        raise RuntimeError(
            f"linalg.{name}: Expected dtype to be a floating point or complex dtype, got {dtype}"
            f"{at_user_line()}"
        )
    if dtype is not None and dtype.is_complex is not x.dtype.is_complex:
        kind = "complex" if x.dtype.is_complex else "real"
        raise RuntimeError(
            f"linalg.{name}: dtype should be {kind} for {kind} inputs, but got {dtype}"
            f"{at_user_line()}"
        )
    return dtype
