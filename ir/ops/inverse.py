"""The pseudo-inverse, and least squares."""

from __future__ import annotations

from ..dtype import int32, int64, real_of
from ..node import Node
from ..numeric import matrices
from ..op import Aval, Cotangents
from ..shape import Size
from .binary import gt, maximum
from .composite import composite
from .contraction import matmul
from .factors import eigh, svd
from .generate import constant
from .host import called, routine
from .matrices import adjoint, by_column, conjugated, kept, succeeded
from .movement import unsqueeze
from .reduce import max
from .ternary import where
from .unary import abs, full_like, zeros_like


def _infer(a: Node, atol: Node, rtol: Node, hermitian: bool) -> Aval:
    return Size((*a.shape[:-2], a.shape[-1], a.shape[-2])), a.dtype


def _pinv(a: Node, atol: Node, rtol: Node, hermitian: bool) -> Node:
    if hermitian:
        values, v = called(eigh, a, True)
        uh = adjoint(v)
    else:
        u, values, vh, info = called(svd, a, False)
        fine = succeeded(info, 2, "linalg.svd")
        values, v, uh = kept(values, fine), adjoint(vh), adjoint(u)
    return matmul(v * by_column(inverted(values, atol, rtol), v), uh)


def inverted(values: Node, atol: Node, rtol: Node) -> Node:
    """1 / values, and 0 where a value is at most max(atol, rtol times the largest)."""
    size = abs(values)
    is_kept = gt(size, cut(size, atol, rtol))
    one = full_like(values, 1)
    return where(is_kept, one / where(is_kept, values, one), zeros_like(values))


def cut(size: Node, atol: Node, rtol: Node) -> Node:
    """The largest size that counts as zero, of size 1 in the last dimension."""
    largest = max(size, (size.rank - 1,))
    return maximum(_column(atol), _column(rtol) * largest)


def _column(tolerance: Node) -> Node:
    return unsqueeze(tolerance, tolerance.rank) if tolerance.rank else tolerance


@conjugated
def _pinv_vjp(
    g: Node, out: Node, a: Node, atol: Node, rtol: Node, hermitian: bool
) -> tuple[Node | None, ...]:
    """Golub and Pereyra, "The differentiation of pseudo-inverses and nonlinear least squares
    problems whose variables separate", 1973, for a rank that doesn't change."""
    return _of_pseudo_inverse(g, out, a), None, None


def _of_pseudo_inverse(g: Node, p: Node, a: Node) -> Node:
    ph, gh = adjoint(p), adjoint(g)
    first = matmul(matmul(ph, g), ph)
    gp = matmul(gh, matmul(p, ph))
    second = gp - matmul(a, matmul(p, gp))
    pg = matmul(matmul(ph, p), gh)
    third = pg - matmul(matmul(pg, p), a)
    return second + third - first


pinv = composite("pinv", _infer, _pinv, vjp=_pinv_vjp, params=("hermitian",), complex=True)
"""The pseudo-inverse of a[..., m, n]. Singular values of at most max(atol, rtol times the largest)
count as zero."""


def _lstsq_types(a: Node, b: Node, cut: float, driver: str) -> tuple[Aval, ...]:
    *batch, m, n = a.shape
    return (
        (Size((*batch, n, b.shape[-1])), a.dtype),
        (Size(batch), int64),
        (Size((*batch, min(m, n))), real_of(a.dtype)),
        (Size(batch), int32),
    )


@conjugated
def _lstsq_vjp(
    g: Node, out: Node, a: Node, b: Node, cut: float, driver: str, index: int
) -> Cotangents:
    """The solution is pinv(a) @ b; singular values have no gradient, as in PyTorch."""
    if index:
        return None, None
    real = real_of(a.dtype)
    p = pinv(a, constant(0.0, real), constant(cut, real), False)
    return _of_pseudo_inverse(matmul(g, adjoint(b)), p, a), matmul(adjoint(p), g)


lstsq = routine("lstsq", _lstsq_types, matrices.lstsq, 4, ("cut", "driver"), _lstsq_vjp)
"""(x, rank, singular values, info): the x[..., n, k] of least norm that minimizes the norm of
a @ x - b, for a[..., m, n] and b[..., m, k] of one batch, by a driver of LAPACK."""
