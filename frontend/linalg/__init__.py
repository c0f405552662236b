"""torch.linalg: linear algebra.

LAPACK computes on the host, wherever the operands are. The formulas around it, gradients among
them, are part of the graph.
"""

from __future__ import annotations

from tilewright.ir.failure import LinAlgError

from ..functions.products import diagonal, matmul, multi_dot
from .decompositions import (
    cholesky,
    cholesky_ex,
    eig,
    eigh,
    eigvals,
    eigvalsh,
    householder_product,
    qr,
    svd,
    svdvals,
)
from .elimination import (
    ldl_factor,
    ldl_factor_ex,
    ldl_solve,
    lu,
    lu_factor,
    lu_factor_ex,
    lu_solve,
)
from .least_squares import cond, lstsq, matrix_rank
from .norms import matrix_norm, norm, vector_norm
from .powers import cross, matrix_exp, matrix_power, vander
from .solving import (
    det,
    inv,
    inv_ex,
    pinv,
    slogdet,
    solve,
    solve_ex,
    solve_triangular,
    tensorinv,
    tensorsolve,
    vecdot,
)

__all__ = [
    "LinAlgError",
    "cholesky",
    "cholesky_ex",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eig",
    "eigh",
    "eigvals",
    "eigvalsh",
    "householder_product",
    "inv",
    "inv_ex",
    "ldl_factor",
    "ldl_factor_ex",
    "ldl_solve",
    "lstsq",
    "lu",
    "lu_factor",
    "lu_factor_ex",
    "lu_solve",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "multi_dot",
    "norm",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_ex",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensorinv",
    "tensorsolve",
    "vander",
    "vecdot",
    "vector_norm",
]
