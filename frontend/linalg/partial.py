"""torch.lobpcg: some eigenvalues of a large symmetric matrix."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from . import decompositions, solving

if TYPE_CHECKING:
    from .._tensor import Tensor


def lobpcg(
    A: Tensor,
    k: int | None = None,
    B: Tensor | None = None,
    X: Tensor | None = None,
    n: int | None = None,
    iK: Tensor | None = None,
    niter: int | None = None,
    tol: float | None = None,
    largest: bool | None = None,
    method: str | None = None,
    tracker: Any = None,
    ortho_iparams: Any = None,
    ortho_fparams: Any = None,
    ortho_bparams: Any = None,
) -> tuple[Tensor, Tensor]:
    """The `k` largest (or smallest) eigenvalues of A[…, m, m] x = λ B x, and their vectors.

    A is symmetric, B positive-definite, m at least 3 k. The matrices are dense here, so all
    eigenvalues are computed at once, exactly, and the best are taken: X, iK, niter, tol and method,
    which steer PyTorch's iteration, change nothing. `tracker` is refused, as nothing is iterated.
    """
    if tracker is not None:
        raise NotImplementedError(f"lobpcg: there are no iterations to track{at_user_line()}")
    count = k if k is not None else (1 if X is None else X.shape[-1])
    m = A.shape[-1]
    if m < 3 * count:
        raise ValueError(
            f"LPBPCG algorithm is not applicable when the number of A rows (={m}) is smaller than 3"
            f" x the number of requested eigenpairs (={count}){at_user_line()}"
        )
    if B is None:
        values, vectors = decompositions.eigh(A)
    else:  # A x = λ L L^H x is the plain problem of L^-1 A L^-H
        lower = decompositions.cholesky(B)
        half = solving.solve_triangular(lower, A, upper=False)
        plain = solving.solve_triangular(lower, half.mH, upper=False).mH
        values, vectors = decompositions.eigh(plain)
        vectors = solving.solve_triangular(lower.mH, vectors, upper=True)
    if largest is None or largest:
        return values[..., -count:].flip(-1), vectors[..., -count:].flip(-1)
    return values[..., :count], vectors[..., :count]
