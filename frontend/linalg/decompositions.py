"""Factors of matrices, as in torch.linalg: Cholesky, QR, eigenvalues, singular values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import return_types
from ..functions.arguments import into
from ..functions.spellings import also_named
from ..recording import record, record_fallible
from ..recording.builders import FLOAT32, builder
from .calling import (
    all_into,
    checked,
    kind_name,
    need_float,
    need_matrices,
    need_square,
    need_wide,
)
from .catching import caught

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._tensor import Tensor

ON_CPU = {"cpu": FLOAT32}
"""PyTorch's autocast computes these in float32 on CPUs."""


# ---- Cholesky --------------------------------------------------------------------------------


def _factor(a: Node, upper: bool, name: str | None) -> tuple[Node, Node]:
    """(L, info), checked under `name`."""
    need_square("linalg.cholesky", a)
    need_float("linalg.cholesky", a)
    need_wide("cholesky_cpu", a)
    found, info = ops.called(ops.cholesky, ops.adjoint(a) if upper else a)
    if name is not None:
        found = ops.kept(found, ops.succeeded(info, a.shape[-1], name))
    return ops.adjoint(found) if upper else found, info


@builder("linalg_cholesky", gradient="LinalgCholeskyExBackward0", casts=ON_CPU)
def checked_cholesky(a: Node, upper: bool, name: str) -> Node:
    return _factor(a, upper, name)[0]


@builder("linalg_cholesky_ex", gradient="LinalgCholeskyExBackward0")
def _cholesky_ex(a: Node, upper: bool, check: bool) -> tuple[Node, Node]:
    return _factor(a, upper, "linalg.cholesky" if check else None)


@also_named(input="A")
def cholesky(A: Tensor, *, upper: bool = False, out: Tensor | None = None) -> Tensor:
    """The lower triangular L of a Hermitian positive-definite A = L Lᴴ; `upper`: Lᴴ. [*, n, n].

    One triangle of A is read. LinAlgError if A is not positive-definite. Gradient: Murray,
    "Differentiation of the Cholesky decomposition", 2016.
    """
    return into(out, checked(checked_cholesky, A, bool(upper), "linalg.cholesky"), cast=False)


@also_named(input="A")
def cholesky_ex(
    A: Tensor,
    *,
    upper: bool = False,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.Factor:
    """`cholesky`, and for each matrix int32 `info`: 0, or the order of the first leading minor that
    is not positive-definite. L is NaN there, and no error is raised unless `check_errors`."""
    call = checked if check_errors else record
    found = call(_cholesky_ex, A, bool(upper), bool(check_errors))
    return all_into(out, return_types.linalg_cholesky_ex(*found))


# ---- QR --------------------------------------------------------------------------------------


@builder("linalg_qr", casts=ON_CPU)
def _qr(a: Node, mode: str) -> tuple[Node, Node]:
    need_matrices("linalg.qr", a)
    need_float("linalg.qr", a)
    if mode not in ("reduced", "complete", "r"):
        raise RuntimeError(
            f"qr received unrecognized mode '{mode}' but expected one of 'reduced' (default), "
            f"'r', or 'complete'{at_user_line()}"
        )
    need_wide("geqrf_cpu", a)
    q, r = ops.called(ops.qr, a, mode == "complete")
    if mode == "r":
        q = ops.slice_(q, [0] * q.rank, [0] * q.rank, [1] * q.rank)
        return ops.reshape(q, (0,)), r
    return q, r


def qr(A: Tensor, mode: str = "reduced", *, out: Sequence[Tensor] | None = None) -> return_types.QR:
    """A = Q R with orthonormal columns of Q and an upper triangular R. A: [*, m, n].

    mode: 'reduced' gives min(m, n) columns of Q, 'complete' all m, 'r' no Q. Gradient, for full
    rank of the first min(m, n) columns, except of 'complete' with m > n: Seeger et al.,
    "Auto-differentiating linear algebra", 2017.
    """
    return all_into(out, return_types.linalg_qr(*record(_qr, A, mode)))


# ---- eigenvalues of Hermitian matrices -------------------------------------------------------


def _reads_lower(a: Node, uplo: str) -> bool:
    """Whether the lower triangle is read."""
    need_square("linalg.eigh", a)
    if not isinstance(uplo, str) or uplo.upper() not in ("L", "U"):
        raise RuntimeError(
            f"Expected UPLO argument to be 'L' or 'U', but got {uplo}{at_user_line()}"
        )
    need_wide("linalg_eigh_cpu", a)
    return uplo.upper() == "L"


@builder("linalg_eigh", casts=ON_CPU)
def _eigh(a: Node, uplo: str) -> tuple[Node, ...]:
    return ops.called(ops.eigh, a, _reads_lower(a, uplo))


@builder("linalg_eigvalsh", gradient="LinalgEighBackward0", casts=ON_CPU)
def _eigvalsh(a: Node, uplo: str) -> Node:
    # A gradient needs the eigenvectors, too.
    routine = ops.eigh if a.requires_grad else ops.eigvalsh
    return ops.called(routine, a, _reads_lower(a, uplo))[0]


@also_named(input="A")
def eigh(A: Tensor, UPLO: str = "L", *, out: Sequence[Tensor] | None = None) -> return_types.Eigen:
    """A = Q diag(L) Qᴴ of a Hermitian A: [*, n, n]. Eigenvalues ascend; one triangle is read.

    Gradient: Giles, "An extended collection of matrix derivative results", 2008, 3.1; that of the
    eigenvectors is finite where the eigenvalues are distinct.
    """
    return all_into(out, return_types.linalg_eigh(*record(_eigh, A, UPLO)))


@also_named(input="A")
def eigvalsh(A: Tensor, UPLO: str = "L", *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of a Hermitian matrix, ascending."""
    return into(out, record(_eigvalsh, A, UPLO), cast=False)


# ---- eigenvalues of any matrices -------------------------------------------------------------


def _to_diagonalize(a: Node) -> None:
    need_square("linalg.eig", a)
    if not (a.dtype.is_floating_point or a.dtype.is_complex):
        raise RuntimeError(f"Unknown Complex ScalarType for {kind_name(a)}{at_user_line()}")
    need_wide("linalg_eig_out_cpu", a)


@builder("linalg_eig", casts=ON_CPU)
def _eig(a: Node) -> tuple[Node, Node]:
    _to_diagonalize(a)
    w, v, info = ops.called(ops.eig, a)
    fine = ops.succeeded(info, 2, "linalg.eig")
    return ops.kept(w, fine), ops.kept(v, fine)


@builder("linalg_eigvals", gradient="LinalgEigBackward0", casts=ON_CPU)
def _eigvals(a: Node) -> Node:
    if a.requires_grad:  # a gradient needs the eigenvectors, too
        return _eig(a)[0]
    _to_diagonalize(a)
    w, info = ops.called(ops.eigvals, a)
    return ops.kept(w, ops.succeeded(info, 2, "linalg.eig"))


@also_named(input="A")
def eig(A: Tensor, *, out: Sequence[Tensor] | None = None) -> return_types.Eigen:
    """A = V diag(L) V⁻¹ of a square matrix, with complex L and V: [*, n, n].

    Eigenvectors have norm 1 and are unique up to phases. RuntimeError for input that isn't finite.
    Gradient: Boeddeker et al., 2017; it is finite where the eigenvalues are distinct.
    """
    return all_into(out, return_types.linalg_eig(*caught(record_fallible(_eig, A))))


@also_named(input="A")
def eigvals(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The eigenvalues of a square matrix, complex, in no order."""
    return into(out, caught(record_fallible(_eigvals, A)))


# ---- singular values -------------------------------------------------------------------------


def _to_decompose(a: Node) -> None:
    need_matrices("linalg.svd", a)
    need_float("linalg.svd", a)
    need_wide("linalg_svd_cpu", a)


@builder("linalg_svd", casts=ON_CPU)
def checked_svd(a: Node, full: bool) -> tuple[Node, Node, Node]:
    _to_decompose(a)
    u, s, vh, info = ops.called(ops.svd, a, full)
    fine = ops.succeeded(info, 2, "linalg.svd")
    return ops.kept(u, fine), ops.kept(s, fine), ops.kept(vh, fine)


@builder("linalg_svdvals", gradient="LinalgSvdBackward0", casts=ON_CPU)
def checked_svdvals(a: Node) -> Node:
    _to_decompose(a)
    if a.requires_grad:  # a gradient needs the singular vectors, too
        return checked_svd(a, False)[1]
    s, info = ops.called(ops.svdvals, a)
    return ops.kept(s, ops.succeeded(info, 2, "linalg.svd"))


_SVD_DRIVERS = ("gesvd", "gesvdj", "gesvda")


def _need_driver(name: str, A: Tensor, driver: str | None) -> None:
    """RuntimeError for a driver beside CPU tensors, and for one that cuSOLVER hasn't."""
    if driver is None:
        return
    if not A.is_cuda:
        raise RuntimeError(
            f"torch.linalg.{name}: keyword argument `driver=` is only supported on CUDA inputs "
            f"with cuSOLVER backend.{at_user_line()}"
        )
    if driver not in _SVD_DRIVERS:
        raise RuntimeError(
            f"torch.linalg.{name}: unknown svd driver {driver}: expected one of "
            f"{', '.join(_SVD_DRIVERS)}{at_user_line()}"
        )


def svd(
    A: Tensor,
    full_matrices: bool = True,
    *,
    driver: str | None = None,
    out: Sequence[Tensor] | None = None,
) -> return_types.SVD:
    """A = U diag(S) Vᴴ, singular values descending. A: [*, m, n].

    full_matrices: whether U and Vᴴ are square; else they have min(m, n) columns and rows. driver:
    a name of cuSOLVER, for CUDA tensors. Whichever it is, gesvdj computes for a batch of small
    matrices and gesvd for others.
    LinAlgError for input that isn't finite. Gradient: Townsend, "Differentiating the singular value
    decomposition", 2016; that of U and Vᴴ is finite where singular values are distinct.
    """
    _need_driver("svd", A, driver)
    found = caught(record_fallible(checked_svd, A, bool(full_matrices)))
    return all_into(out, return_types.linalg_svd(*found))


def svdvals(A: Tensor, *, driver: str | None = None, out: Tensor | None = None) -> Tensor:
    """The singular values of a matrix, descending. The gradient is finite if they are equal,
    too."""
    _need_driver("svdvals", A, driver)
    return into(out, caught(record_fallible(checked_svdvals, A)), cast=False)


# ---- Householder's reflectors ----------------------------------------------------------------


def _reflectors(a: Node, tau: Node) -> tuple[Node, Node]:
    """V and T with H₁ H₂ … = I - V T Vᴴ (Schreiber and Van Loan, "A storage-efficient WY
    representation for products of Householder transformations", 1989).

    T⁻¹ is diag(1 / tau) plus the strict upper triangle of Vᴴ V. Here it is multiplied by diag(tau),
    since a factor may be zero.
    """
    k = tau.shape[-1]
    a = ops.slice_axis(a, a.rank - 1, 0, k)
    v = ops.on_diagonal(a, ops.full_like(a, 1), ops.lower(a, -1))
    overlap = ops.upper(ops.matmul(ops.adjoint(v), v), 1) * ops.by_row(tau)
    scale = ops.identity(k, a, a.shape[:-2]) * ops.by_row(tau)
    (t,) = ops.called(ops.triangular_op, overlap, scale, True, True)
    return v, t


def _need_reflectors(name: str, a: Node, tau: Node) -> None:
    need_matrices(name, a, "input")
    if a.shape[-2] < a.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1]"
            f"{at_user_line()}"
        )
    if a.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-1] must be greater than or equal to tau.shape[-1]"
            f"{at_user_line()}"
        )
    if a.rank - tau.rank != 1 or a.shape[:-2] != tau.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected batch dimensions of tau to be equal to input.shape[:-2], but got "
            f"{list(tau.shape[:-1])}{at_user_line()}"
        )
    if a.dtype is not tau.dtype:
        raise RuntimeError(
            f"{name}: tau dtype {kind_name(tau)} does not match input dtype {kind_name(a)}"
            f"{at_user_line()}"
        )


@builder("linalg_householder_product", casts=ON_CPU)
def _householder_product(a: Node, tau: Node) -> Node:
    _need_reflectors("torch.linalg.householder_product", a, tau)
    need_wide("orgqr_cpu", a)
    m, n = a.shape[-2:]
    start = ops.slice_axis(ops.identity(m, a, a.shape[:-2]), a.rank - 1, 0, n)
    if 0 in (m, n):
        return ops.clone(a)
    if not tau.shape[-1]:
        return ops.flat_in(a, start)
    v, t = _reflectors(a, tau)
    top = ops.slice_axis(v, v.rank - 2, 0, n)
    return start - ops.matmul(v, ops.matmul(t, ops.adjoint(top)))


@also_named(input="A")
def householder_product(A: Tensor, tau: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The first n columns of H₁ H₂ … H_k, Hᵢ = I - tauᵢ vᵢ vᵢᴴ. A: [*, m, n], tau: [*, k].

    vᵢ is column i of A below the diagonal, 1 on it, 0 above. It is computed as I - V T Vᴴ.
    """
    return into(out, record(_householder_product, A, tau))


@builder("ormqr", casts=ON_CPU)
def _ormqr(a: Node, tau: Node, other: Node, left: bool, transpose: bool) -> Node:
    _need_square_product(a, tau, other, left)
    if not tau.shape[-1] or 0 in other.shape:
        return ops.clone(other)
    v, t = _reflectors(a, tau)
    if transpose:
        t = ops.adjoint(t)
    if left:
        return other - ops.matmul(v, ops.matmul(t, ops.matmul(ops.adjoint(v), other)))
    return other - ops.matmul(ops.matmul(ops.matmul(other, v), t), ops.adjoint(v))


def _need_square_product(a: Node, tau: Node, other: Node, left: bool) -> None:
    need_matrices("torch.ormqr", a, "input")
    need_matrices("torch.ormqr", other, "other")
    size = other.shape[-2 if left else -1]
    if size < tau.shape[-1]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be greater than or equal to "
            f"tau.shape[-1]{at_user_line()}"
        )
    if size != a.shape[-2]:
        raise RuntimeError(
            f"torch.ormqr: other.shape[{-2 if left else -1}] must be equal to input.shape[-2]"
            f"{at_user_line()}"
        )
    need_wide("ormqr_cpu", a)


def ormqr(
    input: Tensor,
    tau: Tensor,
    other: Tensor,
    left: bool = True,
    transpose: bool = False,
    *,
    out: Tensor | None = None,
) -> Tensor:
    """Q other, or other Q, of the square Q = H₁ H₂ …, or of Qᴴ."""
    return into(out, record(_ormqr, input, tau, other, bool(left), bool(transpose)))
