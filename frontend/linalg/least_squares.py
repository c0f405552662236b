"""Least squares, ranks and condition numbers, as in torch.linalg."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast

from .. import return_types
from ..functions.arguments import into
from ..functions.spellings import also_named
from ..recording import record_fallible
from ..recording.builders import builder
from .calling import all_into, is_lapacks, kind_name, need_same_dtype
from .catching import caught
from .decompositions import checked_svdvals
from .norms import matrix_norm
from .solving import tolerance, tolerances

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._tensor import Tensor

DRIVERS = ("gels", "gelsy", "gelsd", "gelss")


def _need_double(x: Any) -> None:
    if not is_lapacks(x.dtype):
        raise RuntimeError(
            "This function doesn't handle types other than float and double: got "
            f"{x.dtype}{at_user_line()}"
        )


# ---- least squares ---------------------------------------------------------------------------


@builder("linalg_lstsq")
def _lstsq(a: Node, b: Node, rcond: float, driver: str) -> tuple[Node, Node, Node]:
    """(solution, rank, singular values)."""
    name = "torch.linalg.lstsq"
    if a.rank < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions.{at_user_line()}")
    if b.rank < 1:
        raise RuntimeError(f"{name}: other must have at least 1 dimension.{at_user_line()}")
    if not 0 <= a.rank - b.rank <= 1:
        raise RuntimeError(
            f"{name}: input.dim() must be greater or equal to other.dim() and (input.dim() - "
            f"other.dim()) <= 1{at_user_line()}"
        )
    vector = a.rank - 1 == b.rank and b.shape[:-1] == a.shape[:-2]
    right = ops.by_row(b) if vector else b
    if right.rank < 2 or a.shape[-2] != right.shape[-2]:
        dim = "-1" if vector else "-2"
        raise RuntimeError(f"{name}: input.size(-2) should match other.size({dim}){at_user_line()}")
    if a.dtype is not b.dtype:
        raise RuntimeError(
            f"{name}: Expected input and other to have the same dtype, but got input's dtype "
            f"{kind_name(a)} and other's dtype {kind_name(b)}{at_user_line()}"
        )
    _need_double(a)
    need_same_dtype(name, a, b, "input and other")
    own, batch = a.shape[:-2], broadcast(a.shape[:-2], right.shape[:-2])
    wide = ops.expand(a, (*batch, *a.shape[-2:]))
    right = ops.expand(right, (*batch, *right.shape[-2:]))
    found, rank, s, info = ops.called(ops.lstsq, wide, right, rcond, driver)
    none = ops.zeros_like(info)
    not_finite = ops.where(info < 0, none + 2, none)
    found = ops.kept(found, ops.succeeded(not_finite, 2, "linalg.svd"))
    lost = ops.where(info < 0, none, info)
    found = ops.kept(found, ops.succeeded(lost, min(a.shape[-2:]), name))
    rank, s = _parts(rank, own), _parts(s, (*own, s.shape[-1]))  # of the matrices as they came
    return ops.squeeze(found, (found.rank - 1,)) if vector else found, rank, s


def _parts(x: Node, shape: Sequence[int]) -> Node:
    """The leading part of this shape."""
    return ops.slice_(x, (0,) * x.rank, tuple(shape), (1,) * x.rank)


def _count(s: Node, atol: Node, rtol: Node) -> Node:
    above = ops.gt(s, ops.cut(s, atol, rtol))
    axis = s.rank - 1
    return ops.squeeze(ops.sum(ops.cast(above, dtypes.int64), (axis,)), (axis,))


@also_named(input="A", b="B")
def lstsq(
    A: Tensor,
    B: Tensor,
    rcond: float | None = None,
    *,
    driver: str | None = None,
    out: Sequence[Tensor] | None = None,
) -> return_types.LeastSquares:
    """The X of least norm that minimizes the norm of A X - B. A: [*, m, n]; B: [*, m, k] or [*, m].

    residuals: the squared norms of the columns of A X - B, if m > n and every matrix has rank n;
        none for the driver 'gelsy'.
    rank: of each matrix, none for 'gels'. singular_values: for 'gelsd' and 'gelss'.
    rcond: what is at most rcond times the largest singular value counts as zero; max(m, n) times
        the dtype's eps by default.
    driver: LAPACK's routine. 'gelsy', the default, takes a QR decomposition with exchanges of
        columns, 'gelsd' and 'gelss' singular values. 'gels' takes a QR decomposition as it comes,
        and raises LinAlgError for a matrix that doesn't have full rank.
    """
    chosen = "gelsy" if driver is None else driver
    if chosen not in DRIVERS:
        raise RuntimeError(
            "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)"
            f"{at_user_line()}"
        )
    if rcond is None or rcond < 0:
        sizes = (1,) if rcond is not None else A.shape[-2:] or (1,)
        rcond = tolerances(A, None, None, sizes)[1]  # type: ignore[assignment]
    made = record_fallible(_lstsq, A, B, float(rcond), chosen)  # type: ignore[arg-type]
    solution, rank, values = caught(made)
    m, n = A.shape[-2:]
    none = solution.new_empty(0, dtype=solution.dtype.to_real())
    if chosen == "gels":
        is_full, rank = True, none.to(dtypes.int64)
    else:
        is_full = m > n and chosen != "gelsy" and bool((rank == n).all())
    residuals = none
    if m > n and is_full:
        right = B.unsqueeze(-1) if solution.dim() < A.dim() else B
        found = solution.unsqueeze(-1) if solution.dim() < A.dim() else solution
        residuals = (A @ found - right).abs().square().sum(-2)
    results = return_types.linalg_lstsq(
        solution, residuals, rank, values if chosen in ("gelsd", "gelss") else none
    )
    return all_into(out, results)


# ---- rank and condition ----------------------------------------------------------------------


@builder("linalg_matrix_rank")
def _matrix_rank(a: Node, atol: Node | float, rtol: Node | float, hermitian: bool) -> Node:
    if 0 in a.shape[-2:]:
        return ops.expand(ops.constant(0, dtypes.int64, a.device), a.shape[:-2])
    if hermitian:
        s = ops.abs(ops.called(ops.eigvalsh, a, True)[0])
    else:
        s = checked_svdvals(a)
    return _count(s, tolerance(atol, a), tolerance(rtol, a))


@also_named(input="A")
def matrix_rank(
    A: Tensor,
    tol: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """int64: the number of singular values above max(atol, rtol times the largest). A: [*, m, n].

    rtol: max(m, n) times the dtype's eps by default, 0 if atol is given. tol: the older name of
    atol. hermitian: A is Hermitian, and eigenvalues take the place of singular values.
    """
    _need_double(A)
    if A.dim() < 2:
        raise RuntimeError(
            "torch.linalg.matrix_rank: The input tensor input must have at least 2 dimensions."
            f"{at_user_line()}"
        )
    if hermitian and A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_rank: A must be batches of square matrices, but they are "
            f"{A.shape[-2]} by {A.shape[-1]} matrices{at_user_line()}"
        )
    if tol is not None:
        atol, rtol = tol, 0.0
    low, relative = tolerances(A, atol, rtol, A.shape[-2:])
    return into(out, record_fallible(_matrix_rank, A.detach(), low, relative, bool(hermitian)))


@also_named(input="A")
def cond(A: Tensor, p: float | str | None = None, *, out: Tensor | None = None) -> Tensor:
    """The condition number norm(A, p) norm(A⁻¹, p), by singular values for p = 2, -2 and None.

    p: also 'fro', 'nuc', inf, -inf, 1, -1, for square matrices; inf if such a matrix is singular.
    """
    if A.dim() < 2:
        raise RuntimeError(
            f"linalg.cond: The input tensor must have at least 2 dimensions.{at_user_line()}"
        )
    if p not in (None, 2, -2, 1, -1, math.inf, -math.inf, "fro", "nuc"):
        raise RuntimeError(f"linalg.cond got an invalid norm type: {p}{at_user_line()}")
    if 0 in A.shape[-2:]:
        return into(out, A.new_zeros(A.shape[:-2]))
    if p in (None, 2, -2):
        s = record_fallible(checked_svdvals, A)
        first, last = s[..., 0], s[..., -1]
        return into(out, last / first if p == -2 else first / last)
    if A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            f"linalg.cond(ord={p}): A must be batches of square matrices, but they are "
            f"{A.shape[-2]} by {A.shape[-1]} matrices{at_user_line()}"
        )
    from .solving import inv_ex

    inverse, info = inv_ex(A)
    assert p is not None
    usable = inverse.masked_fill((info != 0)[..., None, None], 0.0)
    found = matrix_norm(A, p) * matrix_norm(usable, p)
    return into(out, found.masked_fill(info != 0, math.inf))
