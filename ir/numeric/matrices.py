"""Functions of batches of matrices: by LAPACK where it can be called, else by NumPy.

NumPy raises an error if one matrix of a batch has no result. Here that matrix has NaN for its
result, and a number other than 0 in `info`, as in LAPACK.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import elimination, lapack
from .batches import by_parts


def cholesky(a: Any) -> Any:
    """(lower L with L Lᴴ = a, info) of the lower triangles. info: the order of the first leading
    minor that is not positive-definite."""
    if lapack.pays(a):
        return by_parts(lapack.cholesky, a)
    return _each(np.linalg.cholesky, _first_minor, a)


def _first_minor(a: Any) -> int:
    low, high = 0, len(a)  # the minor of order `low` is positive-definite, that of `high` is not
    while high - low > 1:
        middle = (low + high) // 2
        try:
            np.linalg.cholesky(a[:middle, :middle])
            low = middle
        except np.linalg.LinAlgError:
            high = middle
    return high


def solve(a: Any, b: Any) -> Any:
    """(x with a @ x = b, info). info: the first pivot that is zero."""
    if lapack.pays(a):
        return by_parts(lapack.solve, a, b)
    return _each(np.linalg.solve, _zero_pivot, a, b)


def inv(a: Any) -> Any:
    """(the inverse, info). info: the first pivot that is zero."""
    if lapack.pays(a):
        return by_parts(lapack.inv, a)
    return _each(np.linalg.inv, _zero_pivot, a)


def solve_triangular(a: Any, b: Any, upper: bool, unit: bool) -> tuple[Any]:
    """The x of a @ x = b, for a[..., n, n] of which one triangle is read."""
    native = elimination.native
    if native is not None and native.substitutes(a, b):
        return (by_parts(lambda a, b: native.solve_triangular(a, b, upper, unit), a, b),)
    if lapack.serves(a):
        return (by_parts(lambda a, b: lapack.solve_triangular(a, b, upper, unit), a, b),)
    return (elimination.solve_triangular(a, b, upper, unit),)


def _zero_pivot(a: Any, *_: Any) -> int:
    return int(elimination.lu(a)[2]) or len(a)


def lu(a: Any) -> Any:
    """(LU, pivots, info), as `elimination.lu`."""
    return by_parts(lapack.lu if lapack.serves(a) and not _is_small(a) else elimination.lu, a)


def _is_small(a: Any) -> bool:
    """Whether native code eliminates `a` faster than LAPACK."""
    return elimination.native is not None and elimination.native.serves(a)


def _each(function: Callable[..., Any], fault: Callable[..., int], *arrays: Any) -> Any:
    """(function(*arrays), info): one by one if a matrix of the batch has no result."""
    batch = arrays[0].shape[:-2]
    info = np.zeros(batch, np.int32)
    try:
        return np.ascontiguousarray(by_parts(function, *arrays)), info
    except np.linalg.LinAlgError:
        out = np.full(arrays[-1].shape, np.nan, arrays[0].dtype)
        for place in np.ndindex(batch):
            matrices = [x[place] for x in arrays]
            try:
                out[place] = function(*matrices)
            except np.linalg.LinAlgError:
                info[place] = fault(*matrices)
        return out, info


def det(a: Any) -> tuple[Any]:
    """The determinants: the products of the pivots. Those of small matrices of integers are
    integers: LAPACK multiplies by reciprocals."""
    diagonal, pivots = _pivots(a, lapack.SMALL)
    return ((diagonal.prod(-1) * _parity(pivots)).astype(a.dtype),)


def _pivots(a: Any, least: int = 0) -> tuple[Any, Any]:
    """The pivots of an elimination of `a` or its transpose, and the exchanges of its rows. least:
    the least matrices for LAPACK."""
    if a.shape[-1] >= least and lapack.serves(a) and not _is_small(a):
        found: tuple[Any, Any] = by_parts(lapack.pivots, a)
        return found
    packed, exchanges, _ = by_parts(elimination.lu, a)
    return np.diagonal(packed, 0, -2, -1), exchanges


def _parity(pivots: Any) -> Any:
    """The determinant of the exchanges, 1 or -1."""
    return 1 - 2 * ((pivots != np.arange(1, pivots.shape[-1] + 1)).sum(-1) % 2)


def slogdet(a: Any) -> tuple[Any, Any]:
    if not lapack.serves(a):
        sign, logarithm = np.linalg.slogdet(a)
        return np.asarray(sign), np.asarray(logarithm)
    diagonal, pivots = _pivots(a)
    sign = np.sign(diagonal).prod(-1) * _parity(pivots)
    with np.errstate(divide="ignore"):
        logarithm = np.log(np.abs(diagonal)).sum(-1)
    return sign.astype(a.dtype), logarithm.astype(_real(a))


def cofactors(a: Any) -> tuple[Any]:
    """det(a) a⁻ᵀ, also where a is singular: by singular values, each the product of the others."""
    out, info = inv(a)
    scale = det(a)[0]
    out = np.swapaxes(out, -2, -1) * scale[..., None, None]
    lost = (info != 0) | ~np.isfinite(out).all((-2, -1))
    for place in np.argwhere(lost):
        out[tuple(place)] = _cofactors(a[tuple(place)])
    return (np.ascontiguousarray(out),)


def _cofactors(a: Any) -> Any:
    if not np.isfinite(a).all():
        return np.full_like(a, np.nan)
    u, s, vh = np.linalg.svd(a)
    ones = np.ones(1, s.dtype)
    before = np.concatenate([ones, np.cumprod(s)[:-1]])
    after = np.concatenate([np.cumprod(s[::-1])[:-1][::-1], ones])
    turn = np.linalg.det(u) * np.linalg.det(vh)
    return ((u.conj() * (before * after)) @ vh.conj()) * turn


def qr(a: Any, complete: bool) -> tuple[Any, Any]:
    if lapack.pays(a) and not (complete and a.shape[-2] > a.shape[-1]):
        return by_parts(lapack.qr, a)  # type: ignore[no-any-return]
    q, r = by_parts(lambda x: tuple(np.linalg.qr(x, "complete" if complete else "reduced")), a)
    return np.ascontiguousarray(q), np.ascontiguousarray(r)


def geqrf(a: Any) -> tuple[Any, Any]:
    """The reflectors of a QR decomposition, below R, and their factors."""
    if lapack.serves(a):
        return by_parts(lapack.geqrf, a)  # type: ignore[no-any-return]
    h, tau = np.linalg.qr(a, "raw")
    return np.ascontiguousarray(np.swapaxes(h, -2, -1)), np.ascontiguousarray(tau)


def eigh(a: Any, lower: bool) -> Any:
    """Eigenvalues, in order, and eigenvectors, by one triangle. NaN if there are none."""
    side: Any = "L" if lower else "U"
    types = (a.shape[:-1], _real(a)), (a.shape, a.dtype)
    if lapack.pays(a):
        return _finite(lambda x: lapack.eigh(x, lower, True), a, *types)
    return _finite(lambda x: np.linalg.eigh(x, side), a, *types)


def eigvalsh(a: Any, lower: bool) -> Any:
    side: Any = "L" if lower else "U"
    values = a.shape[:-1], _real(a)
    if lapack.pays(a):
        return _finite(lambda x: lapack.eigh(x, lower, False)[:1], a, values)
    return _finite(lambda x: (np.linalg.eigvalsh(x, side),), a, values)


def eig(a: Any) -> tuple[Any, Any, Any]:
    """(eigenvalues, eigenvectors, info), complex. info: as `svd`."""
    dtype = np.result_type(a.dtype, np.complex64)
    function = (lambda x: lapack.eig(x, True)) if lapack.pays(a) else np.linalg.eig
    w, v = _finite(function, a, (a.shape[:-1], dtype), (a.shape, dtype))
    return w.astype(dtype, copy=False), v.astype(dtype, copy=False), _missing(a, w)


def eigvals(a: Any) -> tuple[Any, Any]:
    dtype = np.result_type(a.dtype, np.complex64)
    (w,) = _finite(
        (lambda x: lapack.eig(x, False)[:1])
        if lapack.pays(a)
        else (lambda x: (np.linalg.eigvals(x),)),
        a,
        (a.shape[:-1], dtype),
    )
    return w.astype(dtype, copy=False), _missing(a, w)


def svd(a: Any, full: bool) -> tuple[Any, Any, Any, Any]:
    """(U, S, Vᴴ, info). info: 1 if the algorithm didn't converge, 2 if not all of `a` is finite."""
    *batch, m, n = a.shape
    k = min(m, n)
    parts = _finite(
        (lambda x: lapack.svd(x, "A" if full else "S"))
        if lapack.pays(a)
        else (lambda x: np.linalg.svd(x, full)),
        a,
        ((*batch, m, m if full else k), a.dtype),
        ((*batch, k), _real(a)),
        ((*batch, n if full else k, n), a.dtype),
    )
    return (*parts, _missing(a, parts[1]))


def svdvals(a: Any) -> tuple[Any, Any]:
    *batch, m, n = a.shape
    (s,) = _finite(
        (lambda x: lapack.svd(x, "N")[1:2])
        if lapack.pays(a)
        else (lambda x: (np.linalg.svd(x, compute_uv=False),)),
        a,
        ((*batch, min(m, n)), _real(a)),
    )
    return s, _missing(a, s)


def lstsq(a: Any, b: Any, cut: float, driver: str) -> Any:
    """(x, rank, singular values, info), as `lapack.lstsq`; info is -1 if not all of `a` is
    finite."""
    finite = np.isfinite(a).all((-2, -1))
    usable = a if finite.all() else np.where(finite[..., None, None], a, 0)
    call = _lstsq if not lapack.serves(a) or not b.size else lapack.lstsq
    x, rank, s, info = by_parts(lambda a, b: call(a, b, cut, driver), usable, b)
    x[~finite], info[~finite] = np.nan, -1
    return x, rank, s, info


def _lstsq(a: Any, b: Any, cut: float, driver: str) -> tuple[Any, Any, Any, Any]:
    """The same by singular values, for all drivers."""
    *batch, m, n = a.shape
    k = min(m, n)
    if not a.size:
        x = np.zeros((*batch, n, b.shape[-1]), a.dtype)
        none = np.zeros(batch, np.int64)
        return x, none, np.zeros((*batch, k), _real(a)), none.astype(np.int32)
    u, s, vh = np.linalg.svd(a, False)
    is_kept = s > cut * s[..., :1]
    within = np.swapaxes(u.conj(), -2, -1) @ b
    within *= np.where(is_kept, 1 / np.where(is_kept, s, 1), 0)[..., None]
    rank = is_kept.sum(-1)
    info = np.where((rank < k) & (driver == "gels"), rank + 1, 0).astype(np.int32)
    return np.ascontiguousarray(np.swapaxes(vh.conj(), -2, -1) @ within), rank, s, info


def _missing(a: Any, s: Any) -> Any:
    lost = np.isnan(s).any(-1)
    bad = ~np.isfinite(a).all((-2, -1))
    return np.where(bad, 2, np.where(lost, 1, 0)).astype(np.int32)


def _real(a: Any) -> Any:
    return a.real.dtype


def _finite(function: Callable[..., Any], a: Any, *types: Any) -> Any:
    """function(a), with NaN for the matrices that have no result. types: of the results."""
    batch = a.shape[:-2]
    if np.isfinite(a).all():
        try:
            return tuple(np.ascontiguousarray(each) for each in by_parts(function, a))
        except np.linalg.LinAlgError:
            pass
    out = tuple(np.full(shape, np.nan, dtype) for shape, dtype in types)
    for place in np.ndindex(batch):
        if np.isfinite(a[place]).all():
            try:
                for whole, part in zip(out, function(a[place]), strict=True):
                    whole[place] = part
            except np.linalg.LinAlgError:
                pass
    return out


# ---- the exponential -------------------------------------------------------------------------

_LIMITS = {
    np.float64: ((3, 0.01495), (5, 0.2539), (7, 0.9504), (9, 2.0978), (13, 5.3719)),
    np.float32: ((3, 0.42587), (5, 1.8801), (7, 3.9257)),
}
"""The degrees of the approximants and the largest norms for them: those of Higham, "The scaling and
squaring method for the matrix exponential revisited", 2005."""


def matrix_exp(a: Any) -> tuple[Any]:
    """The exponentials, by Padé approximants of scaled matrices that are squared again."""
    return by_parts(_exponentials, a)  # type: ignore[no-any-return]


def _exponentials(a: Any) -> tuple[Any]:
    shape, n = a.shape, a.shape[-1]
    limits = _LIMITS[_real(a).type]
    if n == 1:
        with np.errstate(over="ignore"):
            return (np.exp(a),)
    a = a.reshape(-1, n, n)
    norm = np.abs(a).sum(1).max(1)
    usable = np.isfinite(norm)
    out = np.full(a.shape, np.nan, a.dtype)
    least = 0.0
    for degree, limit in limits:
        is_last = degree == limits[-1][0]
        chosen = usable & (norm >= least) & ((norm < limit) | is_last)
        least = limit
        if chosen.all():
            out = _exponential(a, norm, degree, limit)
        elif chosen.any():
            out[chosen] = _exponential(a[chosen], norm[chosen], degree, limit)
    with np.errstate(over="ignore", invalid="ignore"):
        return (out.reshape(shape),)


def _exponential(a: Any, norm: Any, degree: int, limit: float) -> Any:
    """The exponentials of matrices of these norms by the approximant of a degree, halved as often
    as the limit of the norm wants."""
    times = np.ceil(np.log2(np.maximum(norm / limit, 1))).astype(np.int64)
    if times.any():
        a = a * np.exp2(-times).astype(_real(a))[:, None, None]
    odd, even = _odd_and_even(a, _coefficients(degree))
    find = (lambda a, b: lapack.solve(a, b)[0]) if lapack.pays(a) else np.linalg.solve
    out = find(even - odd, even + odd)
    with np.errstate(over="ignore", invalid="ignore"):
        for done in range(int(times.max(initial=0))):
            rest = times > done
            out[rest] = out[rest] @ out[rest]
    return out


def _coefficients(degree: int) -> list[int]:
    """Those of the numerator of the Padé approximant, times (2 degree)! / degree!."""
    top = math.factorial(2 * degree) // math.factorial(degree)
    return [
        math.factorial(2 * degree - j) * math.comb(degree, j) * top // math.factorial(2 * degree)
        for j in range(degree + 1)
    ]


def _odd_and_even(a: Any, coefficients: Sequence[int]) -> tuple[Any, Any]:
    """The terms of odd and of even degree of the polynomial in `a`."""
    power = square = a @ a
    first = coefficients[0]  # so the exponential of zero is exactly the identity
    even, odd = (coefficients[2 + i] / first * power for i in range(2))
    for degree in range(4, len(coefficients), 2):
        power = power @ square
        even += coefficients[degree] / first * power
        odd += coefficients[degree + 1] / first * power
    for terms, coefficient in ((even, 1.0), (odd, coefficients[1] / first)):
        terms.reshape(len(a), -1)[:, :: a.shape[-1] + 1] += coefficient
    return a @ odd, even
