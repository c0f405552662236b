"""LAPACK's routines on matrices that lie by columns (`ir/ops/lapack.py`), on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from . import matrices


def _turned(a: Any) -> Any:
    return np.ascontiguousarray(np.swapaxes(a, -2, -1))


def _no_info(a: Any) -> Any:
    return np.zeros(a.shape[:-2], np.int32)


def potrf(a: Any) -> Any:
    return matrices.cholesky(a)


def getrf(a: Any) -> tuple[Any, Any, Any]:
    packed, pivots, info = matrices.lu(_turned(a))
    return _turned(packed), pivots.astype(np.int64), info


def getrs(packed: Any, pivots: Any, b: Any) -> tuple[Any]:
    x, whole = _turned(b), _turned(packed)
    for place in np.ndindex(x.shape[:-2]):
        for row, other in enumerate(pivots[place] - 1):
            x[place][[row, other]] = x[place][[other, row]]
    (x,) = matrices.solve_triangular(whole, x, False, True)
    (x,) = matrices.solve_triangular(whole, x, True, False)
    return (_turned(x),)


def laswp(x: Any, pivots: Any) -> tuple[Any]:
    x = x.copy()
    for place in np.ndindex(x.shape[:-1]):
        for row, other in enumerate(pivots[place] - 1):
            x[place][[row, other]] = x[place][[other, row]]
    return (x,)


def geqrf(a: Any) -> tuple[Any, Any]:
    packed, factors = matrices.geqrf(_turned(a))
    return _turned(packed), factors


def orgqr(a: Any, factors: Any) -> tuple[Any]:
    *batch, n, m = a.shape
    q = np.broadcast_to(np.eye(m, n, dtype=a.dtype), (*batch, m, n)).copy()
    for i in reversed(range(factors.shape[-1])):
        v = np.concatenate([np.ones_like(a[..., i, i : i + 1]), a[..., i, i + 1 :]], -1)
        along = np.conj(v)[..., None, :] @ q[..., i:, :]
        q[..., i:, :] -= factors[..., i, None, None] * v[..., :, None] * along
    return (_turned(q),)


def syevd(a: Any, is_lower: bool, vectors: bool) -> tuple[Any, Any, Any]:
    # A triangle of the array is the other one of the matrix.
    if vectors:
        w, v = matrices.eigh(_turned(a), not is_lower)
        return w, _turned(v), _no_info(a)
    (w,) = matrices.eigvalsh(_turned(a), not is_lower)
    return w, np.empty((*a.shape[:-2], 0), a.dtype), _no_info(a)


def gesvd(a: Any, job: str) -> tuple[Any, Any, Any, Any]:
    if job == "N":
        s, info = matrices.svdvals(_turned(a))
        none = np.empty((*a.shape[:-2], 0, 0), a.dtype)
        return none, s, none, info
    u, s, vh, info = matrices.svd(_turned(a), job == "A")
    return _turned(u), s, _turned(vh), info


def gesvdj(a: Any, vectors: bool) -> tuple[Any, Any, Any, Any]:
    if not vectors:
        return gesvd(a, "N")
    u, s, vh, info = matrices.svd(_turned(a), True)
    return _turned(u), s, vh.conj(), info


def geev(a: Any, vectors: bool) -> tuple[Any, Any, Any]:
    if vectors:
        w, v, info = matrices.eig(_turned(a))
        if not np.iscomplexobj(a):
            v = np.where(w.imag[..., None, :] < 0, -v.imag, v.real)
        return w, _turned(v), info
    w, info = matrices.eigvals(_turned(a))
    return w, np.empty((*a.shape[:-2], 0), a.dtype), info
