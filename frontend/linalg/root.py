"""The names of linear algebra that torch itself has: torch.inverse, torch.qr, …"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.op import Op, not_implemented

from .. import return_types
from ..functions import reduction
from ..functions.arguments import into
from ..functions.call import public
from ..functions.spellings import also_named
from ..recording import record, record_fallible
from ..recording.builders import builder
from . import decompositions, elimination, low_rank, norms, powers, solving
from .calling import (
    all_into,
    checked,
    in_one_batch,
    need_matrices,
    need_same_dtype,
    need_square,
    need_wide,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..functions.reduction import Dim
    from ..return_types import PLU, QR, Reflectors, SignedLog, Substituted, TurnedSVD


def _no_form(*routines: Op) -> dict[Op, str]:
    """The routines have no ONNX form."""
    return dict.fromkeys(routines, "ONNX has no operators of linear algebra")


_GONE = (
    "torch.{} is deprecated in favor of torch.linalg.{} and will be removed in a future PyTorch "
    "release."
)


# ---- Cholesky --------------------------------------------------------------------------------


@public("cholesky", unexportable=_no_form(ops.cholesky))
def cholesky(input: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The triangular factor of a symmetric positive-definite matrix; see torch.linalg.cholesky."""
    warn(_GONE.format("cholesky", "cholesky"), once=True)
    if not input.dtype.is_differentiable:
        raise not_implemented("cholesky_cpu", input.dtype)
    build = decompositions.checked_cholesky
    return into(out, checked(build, input, bool(upper), "cholesky"))


@builder("cholesky_inverse")
def _cholesky_inverse(factor: Node, upper: bool) -> Node:
    need_square("cholesky_inverse", factor)
    need_wide("cholesky_inverse_out_cpu", factor)
    n = factor.shape[-1]
    if 0 in factor.shape:
        return ops.clone(factor)
    diagonal = ops.diagonal(factor, 0, factor.rank - 2, factor.rank - 1)
    place = ops.expand(ops.positions_along(diagonal.rank - 1, diagonal.shape), diagonal.shape)
    zero = ops.eq(diagonal, ops.zeros_like(diagonal))
    first = ops.min(ops.where(zero, place, ops.full_like(place, n)), (diagonal.rank - 1,))
    first = ops.squeeze(first, (first.rank - 1,))
    fault = ops.where(first < n, first + 1, ops.zeros_like(first))
    fine = ops.succeeded(fault, n, "cholesky_inverse")
    return ops.kept(ops.cholesky_inverse(factor, upper), fine)


@public("cholesky_inverse", _cholesky_inverse, unexportable=_no_form(ops.cholesky_inverse))
@also_named(input="L")
def cholesky_inverse(L: Tensor, upper: bool = False, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a matrix by its Cholesky factor."""
    return into(out, record_fallible(_cholesky_inverse, L, bool(upper)))


@builder("cholesky_solve")
def _cholesky_solve(b: Node, factor: Node, upper: bool) -> Node:
    need_matrices("cholesky_solve", b, "b")
    need_square("cholesky_solve", factor, "u")
    need_same_dtype("cholesky_solve", b, factor, "b and A")
    if b.shape[-2] != factor.shape[-1]:
        raise RuntimeError(
            f"Incompatible matrix sizes for cholesky_solve: each A matrix is {factor.shape[-1]} by "
            f"{factor.shape[-1]} but each b matrix is {b.shape[-2]} by {b.shape[-1]}"
            f"{at_user_line()}"
        )
    need_wide("cholesky_solve_cpu", b)
    factor, b = in_one_batch(factor, b)
    return ops.cholesky_solve(b, factor, upper)


@public(
    "cholesky_solve",
    _cholesky_solve,
    unexportable=_no_form(ops.cholesky_solve, ops.triangular_op),
)
@also_named(input="B", input2="L")
def cholesky_solve(
    B: Tensor, L: Tensor, upper: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """X with A X = B, for the Cholesky factor of A."""
    return into(out, record(_cholesky_solve, B, L, bool(upper)))


# ---- inverses and determinants ---------------------------------------------------------------


@public("inverse", unexportable=_no_form(ops.inv, ops.solve))
def inverse(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a square matrix; see torch.linalg.inv."""
    return solving.inv(input, out=out)


@public("pinverse", unexportable=_no_form(ops.pinv))
def pinverse(input: Tensor, rcond: float = 1e-15) -> Tensor:
    """The pseudo-inverse; see torch.linalg.pinv."""
    return solving.pinv(input, rcond)


@public("det", unexportable=_no_form(ops.cofactors))
def det(input: Tensor) -> Tensor:
    """The determinant; see torch.linalg.det."""
    return solving.det(input)


@public("logdet", solving.log_determinant)
def logdet(input: Tensor) -> Tensor:
    """The logarithm of the determinant: -inf if it is zero, NaN if it is negative."""
    return record(solving.log_determinant, input)


@public("slogdet", unexportable=_no_form(ops.slogdet))
def slogdet(input: Tensor, *, out: Sequence[Tensor] | None = None) -> SignedLog:
    """The determinant's sign and the logarithm of its size; see torch.linalg.slogdet."""
    return all_into(out, return_types.slogdet(*solving.slogdet(input)))


@public("matrix_exp", unexportable=_no_form(ops.matrix_exp))
def matrix_exp(input: Tensor) -> Tensor:
    """The exponential of a square matrix; see torch.linalg.matrix_exp."""
    return powers.matrix_exp(input)


@public("matrix_power")
def matrix_power(input: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The product of n copies of a square matrix; for n < 0 of copies of its inverse."""
    return powers.matrix_power(input, n, out=out)


# ---- norms -----------------------------------------------------------------------------------


@public("norm")
def norm(
    input: Tensor,
    p: float | str | None = "fro",
    dim: Dim = None,
    keepdim: bool = False,
    *,
    dtype: DType | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The p-norm of the elements over `dim`. 'fro' is 2; 'nuc' is the sum of the singular values of
    matrices, whose rows and columns lie along two dimensions `dim`."""
    if p == "nuc":
        dims = tuple(range(input.dim())) if dim is None else dim
        return norms.matrix_norm(input, "nuc", dims, keepdim, dtype=dtype, out=out)  # type: ignore[arg-type]
    x = input if dtype is None else input.to(dtype)
    return reduction.norm(x, p, dim, keepdim, out=out)


@public("nuclear_norm", method=False)
def nuclear_norm(
    input: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The sum of the singular values of matrices; see torch.linalg.matrix_norm."""
    return norm(input, "nuc", (-2, -1) if dim is None else dim, keepdim, out=out)


@public("frobenius_norm", method=False)
def frobenius_norm(
    input: Tensor, dim: Dim = None, keepdim: bool = False, *, out: Tensor | None = None
) -> Tensor:
    """The root of the sum of squares over `dim`."""
    return reduction.norm(input, 2.0, dim, keepdim, out=out)


# ---- orthogonal factors ----------------------------------------------------------------------


@public("qr", unexportable=_no_form(ops.qr))
def qr(input: Tensor, some: bool = True, *, out: Sequence[Tensor] | None = None) -> QR:
    """(Q, R), complete if not `some`; see torch.linalg.qr."""
    warn(_GONE.format("qr", "qr"), once=True)
    found = decompositions.qr(input, "reduced" if some else "complete")
    return all_into(out, return_types.qr(*found))


@public(
    "svd", unexportable=_no_form(ops.svd, ops.svdvals, ops.eigh, ops.eigvalsh, ops.eig, ops.eigvals)
)
def svd(
    input: Tensor,
    some: bool = True,
    compute_uv: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> TurnedSVD:
    """(U, S, V), with V in the place of the Vᴴ of torch.linalg.svd. Without `compute_uv` U and V
    are zero."""
    if compute_uv:
        u, s, vh = decompositions.svd(input, not some)
        return all_into(out, return_types.svd(u, s, vh.mH))
    *batch, m, n = input.shape
    s = decompositions.svdvals(input)
    zeros = [input.new_zeros((*batch, size, size)) for size in (m, n)]
    return all_into(out, return_types.svd(zeros[0], s, zeros[1]))


@builder("geqrf")
def _geqrf(a: Node) -> tuple[Node, ...]:
    need_matrices("torch.geqrf", a, "input")
    need_wide("geqrf_cpu", a)
    return ops.called(ops.geqrf, a)


@public("geqrf", _geqrf, unexportable=_no_form(ops.geqrf))
def geqrf(input: Tensor, *, out: Sequence[Tensor] | None = None) -> Reflectors:
    """LAPACK's form of a QR decomposition: R, the reflectors below it, and their factors."""
    return all_into(out, return_types.geqrf(*record(_geqrf, input)))


@public("orgqr")
def orgqr(input: Tensor, input2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The columns of a product of reflectors; see torch.linalg.householder_product."""
    return decompositions.householder_product(input, input2, out=out)


@public("ormqr")
def ormqr(
    input: Tensor,
    input2: Tensor,
    input3: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """The product of the square Q of reflectors, or of its adjoint, and a matrix."""
    return decompositions.ormqr(input, input2, input3, left, transpose, out=out)


# ---- elimination -----------------------------------------------------------------------------


def _lu_of(self: Tensor, pivot: bool = True, get_infos: bool = False) -> tuple[Tensor, ...]:
    return lu(self, pivot, get_infos)


@public("lu", method=_lu_of, unexportable=_no_form(ops.lu, ops.permutation))
def lu(
    A: Tensor, pivot: bool = True, get_infos: bool = False, out: Sequence[Tensor] | None = None
) -> tuple[Tensor, ...]:
    """(LU, pivots), and the infos if asked for; see torch.linalg.lu_factor_ex."""
    warn(_GONE.format("lu", "lu_factor / torch.linalg.lu_factor_ex"), once=True)
    if get_infos:
        return tuple(elimination.lu_factor_ex(A, pivot=pivot, out=out))
    if out is not None:
        return tuple(elimination.lu_factor(A, pivot=pivot, out=out))
    return tuple(elimination.lu_factor(A, pivot=pivot))


@public("lu_solve")
@also_named(input="b")
def lu_solve(b: Tensor, LU_data: Tensor, LU_pivots: Tensor, *, out: Tensor | None = None) -> Tensor:
    """X with A X = b, for the factors of A; see torch.linalg.lu_solve."""
    warn(_GONE.format("lu_solve", "lu_solve"), once=True)
    return elimination.lu_solve(LU_data, LU_pivots, b, out=out)


@public("lu_unpack", method=False)
def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> PLU:
    """(P, L, U) of the compact form of `lu`. Parts that aren't unpacked are empty."""
    return elimination.lu_unpack(LU_data, LU_pivots, unpack_data, unpack_pivots, out=out)


@builder("triangular_solve")
def _triangular_solve(
    b: Node, a: Node, upper: bool, transpose: bool, unit: bool
) -> tuple[Node, Node]:
    need_matrices("torch.triangular_solve", b, "b")
    need_square("torch.triangular_solve", a)
    a, b = in_one_batch(a, b)
    turned = ops.transpose(a) if transpose else a
    found = solving.solved_triangular(turned, b, upper is not transpose, True, unit)
    return found, ops.clone(a)


@public("triangular_solve", _triangular_solve)
@also_named(input="b")
def triangular_solve(
    b: Tensor,
    A: Tensor,
    upper: bool = True,
    transpose: bool = False,
    unitriangular: bool = False,
    *,
    out: Sequence[Tensor] | None = None,
) -> Substituted:
    """X with A X = b for a triangular A, and a copy of A; see torch.linalg.solve_triangular."""
    warn(_GONE.format("triangular_solve", "solve_triangular"), once=True)
    found = record(_triangular_solve, b, A, bool(upper), bool(transpose), bool(unitriangular))
    return all_into(out, return_types.triangular_solve(*found))


# ---- low rank --------------------------------------------------------------------------------


@public("svd_lowrank", method=False)
def svd_lowrank(
    A: Tensor, q: int | None = 6, niter: int | None = 2, M: Tensor | None = None
) -> TurnedSVD:
    """(U, S, V) of the q largest singular values of A - M, nearly: [*, m, n].

    A random projection and `niter` steps of subspace iteration find them (Halko, Martinsson and
    Tropp, 2009). M is expanded to the shape of A.
    """
    return low_rank.low_rank(A, 6 if q is None else q, 2 if niter is None else niter, M)


@public("pca_lowrank", method=False)
def pca_lowrank(A: Tensor, q: int | None = None, center: bool = True, niter: int = 2) -> TurnedSVD:
    """(U, S, V) of the q main components of the rows of A, as `svd_lowrank`. center: the mean of
    each column is taken away first. ValueError for a q above min(m, n)."""
    q = min(6, *A.shape[-2:]) if q is None else q
    low_rank.checked("pca_lowrank", A, q, niter)
    return low_rank.low_rank(A - A.mean(-2, keepdim=True) if center else A, q, niter, None)
