"""torch.linalg: linear algebra."""

from __future__ import annotations

from ..functions.products import cross, diagonal, matmul, matrix_power, multi_dot, vander
from .norms import matrix_norm, norm, vector_norm

__all__ = [
    "cross",
    "diagonal",
    "matmul",
    "matrix_norm",
    "matrix_power",
    "multi_dot",
    "norm",
    "vander",
    "vector_norm",
]
