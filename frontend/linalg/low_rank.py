"""Singular values of the largest components, by random projections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from .. import return_types
from ..functions.products import matmul
from ..functions.sampling import randn
from .decompositions import qr, svd

if TYPE_CHECKING:
    from .._tensor import Tensor


def basis(A: Any, q: int, niter: int) -> Any:
    """q orthonormal columns near the range of A, after `niter` steps of subspace iteration (Halko,
    Martinsson and Tropp, "Finding structure with randomness", 2009, algorithm 4.4)."""
    turned = A.mH
    drawn = randn(A.shape[-1], q, dtype=A.dtype, device=A.device)
    found = qr(matmul(A, drawn)).Q
    for _ in range(niter):
        found = qr(matmul(turned, found)).Q
        found = qr(matmul(A, found)).Q
    return found


def components(A: Any, q: int, niter: int) -> tuple[Tensor, Tensor, Tensor]:
    """(U, S, V) of about rank q: algorithm 5.1, on the side of A that is shorter."""
    m, n = A.shape[-2:]
    if m < n:
        v, s, u = components(A.mH, q, niter)
        return u, s, v
    columns = basis(A, q, niter)
    u, s, vh = svd(matmul(columns.mH, A), False)
    return matmul(columns, u), s, vh.mH


def checked(name: str, A: Any, q: int, niter: int) -> None:
    m, n = A.shape[-2:]
    if not 0 <= q <= min(m, n):
        raise ValueError(
            f"{name}: q(={q}) must be non-negative integer and not greater than min(m, n)="
            f"{min(m, n)}{at_user_line()}"
        )
    if niter < 0:
        raise ValueError(f"{name}: niter(={niter}) must be non-negative integer{at_user_line()}")


def low_rank(A: Any, q: int, niter: int, M: Any) -> return_types.TurnedSVD:
    if M is not None:
        A = A - M.expand(A.shape)
    return return_types.svd(*components(A, min(q, *A.shape[-2:]), niter))
