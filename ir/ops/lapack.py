"""LAPACK's routines on matrices that lie by columns, as the libraries of GPUs compute them.

Where memory has a matrix by columns, an array of the same memory has its transpose. So each operand
and result here is the transpose of the matrix that LAPACK's documentation speaks of, unless it is
said otherwise. `codegen/legalize/factors.py` writes the routines of `factors.py` and `solving.py`
in these, for GPUs whose library has them. They have no gradients: derivatives are taken before.
"""

from __future__ import annotations

from ..dtype import complex_of, int32, int64, real_of
from ..node import Node
from ..numeric import columns
from ..op import Aval
from ..shape import Size
from .host import routine


def _info(x: Node) -> Aval:
    return Size(x.shape[:-2]), int32


def _vector(x: Node, n: int) -> Size:
    return Size((*x.shape[:-2], n))


potrf = routine("potrf", lambda a: ((a.shape, a.dtype), _info(a)), columns.potrf, 2)
"""(L, info) with a = L Lᴴ, both as arrays. Only the lower triangle of `a` is read. The elements
above that of L are not defined, and L isn't where info isn't 0."""

getrf = routine(
    "getrf",
    lambda a: ((a.shape, a.dtype), (_vector(a, min(a.shape[-2:])), int64), _info(a)),
    columns.getrf,
    3,
)
"""(LU, pivots from 1 on, info)."""

getrs = routine(
    "getrs", lambda packed, pivots, b: ((b.shape, b.dtype),), columns.getrs, 1, complex=True
)
"""The solution for the right sides `b` by the results of `getrf`."""

laswp = routine("laswp", lambda x, pivots: ((x.shape, x.dtype),), columns.laswp, 1)
"""float64[..., m] with the exchanges that int32 `pivots` name, from 1 on."""

geqrf = routine(
    "geqrf_by_columns",
    lambda a: ((a.shape, a.dtype), (_vector(a, min(a.shape[-2:])), a.dtype)),
    columns.geqrf,
    2,
)
"""(reflectors and R, factors of the reflectors)."""

orgqr = routine("orgqr", lambda a, factors: ((a.shape, a.dtype),), columns.orgqr, 1)
"""The first columns of Q, as many as `a` has, by the results of `geqrf`."""


def _syevd_types(a: Node, is_lower: bool, vectors: bool) -> tuple[Aval, ...]:
    v = a.shape if vectors else _vector(a, 0)
    return (Size(a.shape[:-1]), real_of(a.dtype)), (v, a.dtype), _info(a)


syevd = routine("syevd", _syevd_types, columns.syevd, 3, ("is_lower", "vectors"))
"""(eigenvalues in ascending order, eigenvectors, info). is_lower: which triangle of the array is
read. vectors: whether they are computed."""


def _gesvd_types(a: Node, job: str) -> tuple[Aval, ...]:
    *batch, n, m = a.shape
    k = 0 if job == "N" else n
    left = m if job == "A" else k
    return (
        (Size((*batch, left, m if k else 0)), a.dtype),
        (Size((*batch, n)), real_of(a.dtype)),
        (Size((*batch, k, k)), a.dtype),
        _info(a),
    )


gesvd = routine("gesvd", _gesvd_types, columns.gesvd, 4, ("job",))
"""(U, singular values in descending order, Vᴴ, info) of a matrix with no more columns than rows.
job: "A" for all columns of U, "S" for as many as there are singular values, "N" for neither U nor
Vᴴ."""


def _gesvdj_types(a: Node, vectors: bool) -> tuple[Aval, ...]:
    *batch, n, m = a.shape
    rows, columns = (m, n) if vectors else (0, 0)
    return (
        (Size((*batch, rows, rows)), a.dtype),
        (Size((*batch, min(m, n))), real_of(a.dtype)),
        (Size((*batch, columns, columns)), a.dtype),
        _info(a),
    )


FEW = 32
"""The most rows and columns of the matrices that `gesvdj` takes."""
gesvdj = routine("gesvdj", _gesvdj_types, columns.gesvdj, 4, ("vectors",))
"""(U, singular values in descending order, V, info) of a batch of small matrices, by Jacobi's
method, with all columns of U and V. vectors: whether these are computed."""


def _geev_types(a: Node, vectors: bool) -> tuple[Aval, ...]:
    v = a.shape if vectors else _vector(a, 0)
    return (Size(a.shape[:-1]), complex_of(real_of(a.dtype))), (v, a.dtype), _info(a)


geev = routine("geev", _geev_types, columns.geev, 3, ("vectors",))
"""(eigenvalues, right eigenvectors of norm 1, info). Of real matrices conjugate eigenvalues follow
each other, that above the real axis first, and a vector each holds the real and the imaginary part
of the first eigenvector."""
