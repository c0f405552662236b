"""Factors of matrices: Cholesky, QR, LU, eigenvalues and singular values.

`info` is 0 where a factorization succeeded. Otherwise LAPACK's number of the fault, and the other
results are NaN.
"""

from __future__ import annotations

from ..dtype import COMPLEX, DType, complex_of, int32, int64, real_of
from ..location import at_user_line
from ..node import Node
from ..numeric import elimination, matrices
from ..op import Aval, Cotangents
from ..shape import Size
from .complex import conj, real
from .contraction import matmul
from .gather import take_along
from .host import TILE, called, results_of, routine
from .matrices import (
    adjoint,
    by_column,
    by_row,
    conjugated,
    from_lower,
    identity,
    lower,
    on_diagonal,
    upper,
)
from .movement import cat, expand, pad, slice_axis, transpose
from .scan import argsort
from .solving import solve, solve_triangular
from .strided import diagonal
from .unary import cast, full_like, zeros_like


def _batch(a: Node) -> tuple[int, ...]:
    return a.shape[:-2]


def _narrow(x: Node, axis: int, start: int, stop: int) -> Node:
    return slice_axis(x, x.rank + axis, start, stop)


# ---- Cholesky --------------------------------------------------------------------------------


@conjugated
def _cholesky_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """Murray, "Differentiation of the Cholesky decomposition", 2016."""
    inner = matmul(adjoint(out), g)
    turned = adjoint(out)
    left = solve_triangular(turned, from_lower(inner), True, False)
    return (adjoint(solve_triangular(turned, adjoint(left), True, False)) * 0.5,)


cholesky = routine(
    "cholesky",
    lambda a: ((a.shape, a.dtype), (Size(_batch(a)), int32)),
    matrices.cholesky,
    2,
    vjp=_cholesky_vjp,
    tile=TILE,
)
"""(L, info) of the lower triangle of `a`: a = L Lᴴ. info: the order of the first leading minor that
isn't positive-definite."""


# ---- QR --------------------------------------------------------------------------------------


def _qr_types(a: Node, complete: bool) -> tuple[Aval, ...]:
    *batch, m, n = a.shape
    k = m if complete else min(m, n)
    return (Size((*batch, m, k)), a.dtype), (Size((*batch, k, n)), a.dtype)


@conjugated
def _qr_vjp(g: Node, out: Node, a: Node, complete: bool, index: int) -> Cotangents:
    """Seeger et al., "Auto-differentiating linear algebra", 2017, for square and tall matrices.

    A wide matrix is [X Y] with square X = Q R, and Qᴴ Y is a function of Q.
    """
    m, n = a.shape[-2:]
    if complete and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols"
            f"{at_user_line()}"
        )
    q, r = results_of(out)
    if m >= n:
        return (_qr_grad(q, r, *((g, None) if index == 0 else (None, g))),)
    square = _narrow(r, -1, 0, m)
    if index == 0:
        left, right = _qr_grad(q, square, g, None), zeros_like(_narrow(a, -1, m, n))
    else:
        first, rest = _narrow(g, -1, 0, m), _narrow(g, -1, m, n)
        right = matmul(q, rest)
        of_q = matmul(_narrow(a, -1, m, n), adjoint(rest))
        left = _qr_grad(q, square, of_q, first)
    return (cat([left, right], a.rank - 1),)


def _qr_grad(q: Node, r: Node, of_q: Node | None, of_r: Node | None) -> Node:
    inner = None
    if of_r is not None:
        inner = matmul(r, adjoint(of_r))
    if of_q is not None:
        part = matmul(adjoint(of_q), q)
        inner = -part if inner is None else inner - part
    assert inner is not None
    total = matmul(q, from_lower(inner))
    total = total if of_q is None else of_q + total
    # total r⁻ᴴ = (r⁻¹ totalᴴ)ᴴ
    return adjoint(solve_triangular(r, adjoint(total), True, False))


qr = routine("qr", _qr_types, matrices.qr, 2, ("complete",), _qr_vjp, tile=TILE)
"""(Q, R): a = Q R, with min(m, n) columns in Q, or all m if `complete`."""

geqrf = routine(
    "geqrf",
    lambda a: ((a.shape, a.dtype), (Size((*_batch(a), min(a.shape[-2:]))), a.dtype)),
    matrices.geqrf,
    2,
)
"""(reflectors, below R; their factors) of a QR decomposition, without a gradient."""


# ---- LU --------------------------------------------------------------------------------------


def _lu_types(a: Node) -> tuple[Aval, ...]:
    batch = _batch(a)
    return (a.shape, a.dtype), (Size((*batch, min(a.shape[-2:]))), int32), (Size(batch), int32)


def _lu_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """Of A = P L U, from dL = L tril(L⁻¹ dA U⁻¹, -1) and dU = triu(L⁻¹ dA U⁻¹) U for a square A.

    The rows below a tall matrix's square are A₂ U⁻¹, and the columns on the right of a wide one are
    L⁻¹ A₂, with the cotangents of these quotients.
    """
    m, n = a.shape[-2:]
    k = min(m, n)
    square, of_square = (_narrow(_narrow(x, -2, 0, k), -1, 0, k) for x in (out, g))
    left = transpose(lower(square, -1) + identity(k, square, _batch(a)))  # upper, of ones
    right = transpose(upper(square))
    below = matmul(left, lower(of_square, -1))
    above = matmul(upper(of_square), right)
    rest = None
    if m > n:
        # X U⁻ᵀ = (U⁻¹ Xᵀ)ᵀ
        tail = _narrow(out, -2, k, m)
        rest = transpose(
            solve_triangular(upper(square), transpose(_narrow(g, -2, k, m)), True, False)
        )
        above = above - matmul(transpose(tail), _narrow(g, -2, k, m))
    elif n > m:
        tail = _narrow(out, -1, k, n)
        rest = solve_triangular(left, _narrow(g, -1, k, n), True, True)
        below = below - matmul(_narrow(g, -1, k, n), transpose(tail))
    inner = solve_triangular(left, lower(below, -1) + upper(above), True, True)
    found = transpose(solve_triangular(upper(square), transpose(inner), True, False))
    if rest is not None:
        found = cat([found, rest], a.rank - (2 if m > n else 1))
    (order,) = called(permutation, results_of(out)[1], m)
    back = argsort(order, order.rank - 1)
    return (take_along(found, expand(by_row(back), a.shape), a.rank - 2),)


lu = routine("lu", _lu_types, matrices.lu, 3, vjp=_lu_vjp, tile=TILE)
"""(LU, pivots, info): P a = L U, with L, whose diagonal is 1, below the diagonal. int32 pivots from
1 on, as LAPACK has them. info: the first zero on the diagonal of U."""

permutation = routine(
    "permutation",
    lambda pivots, rows: ((Size((*pivots.shape[:-1], rows)), int64),),
    lambda pivots, rows: (elimination.permutation(pivots, rows),),
    1,
    ("rows",),
    tile=TILE,
)
"""int64: the rows of `a` in the order in which L U has them."""


# ---- eigenvalues of symmetric matrices -------------------------------------------------------


def _real(a: Node) -> DType:
    return real_of(a.dtype)


def _apart(values: Node, x: Node) -> Node:
    """x[i, j] / (values[j] - values[i]), and zero on the diagonal."""
    gaps = by_column(values) - by_row(values)
    zero = zeros_like(x)
    gaps = on_diagonal(x, full_like(gaps, 1), gaps)
    return on_diagonal(x, zero, x / (gaps if gaps.dtype is x.dtype else cast(gaps, x.dtype)))


@conjugated
def _eigh_vjp(g: Node, out: Node, a: Node, is_lower: bool, index: int) -> Cotangents:
    """Giles, "An extended collection of matrix derivative results", 2008, 3.1."""
    w, v = results_of(out)
    if index == 0:
        return (matmul(v * by_column(g, v), adjoint(v)),)
    found = matmul(matmul(v, _apart(w, matmul(adjoint(v), g))), adjoint(v))
    return ((found + adjoint(found)) / 2,)  # symmetric, as in PyTorch


eigh = routine(
    "eigh",
    lambda a, is_lower: ((Size(a.shape[:-1]), _real(a)), (a.shape, a.dtype)),
    matrices.eigh,
    2,
    ("is_lower",),
    _eigh_vjp,
)
"""(eigenvalues in ascending order, eigenvectors) of a symmetric matrix of which one triangle is
read."""

eigvalsh = routine(
    "eigvalsh",
    lambda a, is_lower: ((Size(a.shape[:-1]), _real(a)),),
    matrices.eigvalsh,
    1,
    ("is_lower",),
)
"""The eigenvalues alone, without a gradient."""


# ---- eigenvalues of any matrices -------------------------------------------------------------


def _eig_types(a: Node) -> tuple[Aval, ...]:
    dtype = complex_of(_real(a))
    return (Size(a.shape[:-1]), dtype), (a.shape, dtype), (Size(_batch(a)), int32)


@conjugated
def _eig_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """Boeddeker et al., "On the computation of complex-valued gradients with application to
    statistically optimum beamforming", 2017, for eigenvectors of norm 1."""
    w, v, _ = results_of(out)
    turned = adjoint(v)
    if index == 0:
        inner = by_row(g) * turned
    else:
        within = matmul(turned, g)
        lengths = real(diagonal(within, 0, v.rank - 2, v.rank - 1))
        within = within - matmul(turned, v) * by_column(lengths, v)
        inner = matmul(_apart(conj(w), within), turned)
    found, _ = called(solve, turned, inner)
    return (found if a.dtype.category == COMPLEX else real(found),)


eig = routine("eig", _eig_types, matrices.eig, 3, vjp=_eig_vjp)
"""(eigenvalues, eigenvectors of norm 1, info), which are complex. info: 2 if not all of `a` is
finite."""

eigvals = routine("eigvals", lambda a: _eig_types(a)[::2], matrices.eigvals, 2)
"""(eigenvalues, info) alone, without a gradient."""


# ---- singular values -------------------------------------------------------------------------


def _svd_types(a: Node, full: bool) -> tuple[Aval, ...]:
    *batch, m, n = a.shape
    k = min(m, n)
    return (
        (Size((*batch, m, m if full else k)), a.dtype),
        (Size((*batch, k)), _real(a)),
        (Size((*batch, n if full else k, n)), a.dtype),
        (Size(batch), int32),
    )


@conjugated
def _svd_vjp(g: Node, out: Node, a: Node, full: bool, index: int) -> Cotangents:
    """Townsend, "Differentiating the singular value decomposition", 2016. The further columns of
    full matrices have no gradient."""
    u, s, vh, _ = results_of(out)
    m, n = a.shape[-2:]
    k = min(m, n)
    u, vh = _narrow(u, -1, 0, k), _narrow(vh, -2, 0, k)
    if index == 1:
        return (matmul(u * by_column(g, u), vh),)
    if index == 0:
        g = _narrow(g, -1, 0, k)
        within = matmul(adjoint(u), g)
        turn = within - adjoint(within)
        inner = _apart(s * s, turn) * by_column(s, u)
        if a.dtype.category == COMPLEX:
            # A column of U and V turns by one phase, which the loss doesn't depend on.
            inner = on_diagonal(inner, turn / by_column(s + s, u), inner)
        left = matmul(u, inner)
        if m > k:
            left = left + (g - matmul(u, within)) / by_column(s, u)
        return (matmul(left, vh),)
    g = _narrow(g, -2, 0, k)
    within = matmul(vh, adjoint(g))
    inner = _apart(s * s, within - adjoint(within)) * by_row(s, vh)
    right = matmul(inner, vh)
    if n > k:
        right = right + (g - matmul(adjoint(within), vh)) / by_row(s, vh)
    return (matmul(u, right),)


svd = routine("svd", _svd_types, matrices.svd, 4, ("full",), _svd_vjp)
"""(U, S, Vᴴ, info): a = U diag(S) Vᴴ, S in descending order. info: 2 if not all of `a` is
finite."""

svdvals = routine(
    "svdvals",
    lambda a: (
        (Size((*_batch(a), min(a.shape[-2:]))), _real(a)),
        (Size(_batch(a)), int32),
    ),
    matrices.svdvals,
    2,
)
"""(S, info) alone, without a gradient."""


# ---- the exponential -------------------------------------------------------------------------


def _exp_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """exp([[A, E], [0, A]]) has the derivative of exp(A) along E in its corner (Najfeld and Havel,
    1995). The transpose of this map is the derivative at Aᵀ."""
    n = a.shape[-1]
    turned = transpose(a)
    none = [0] * (a.rank - 1)
    upper_half = cat([turned, g], a.rank - 1)
    lower_half = pad(turned, (*none, n), (*none, 0))
    (whole,) = called(matrix_exp, cat([upper_half, lower_half], a.rank - 2))
    return (_narrow(_narrow(whole, -2, 0, n), -1, n, 2 * n),)


matrix_exp = routine(
    "matrix_exp", lambda a: ((a.shape, a.dtype),), matrices.matrix_exp, 1, vjp=_exp_vjp
)
"""The exponential of a square matrix."""
