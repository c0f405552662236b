"""Solutions and inverses by the Cholesky factors of matrices, L with A = L Lᴴ, or Lᴴ if `upper`.

The gradient of a factor is that of A = L Lᴴ for any L, as in PyTorch, although one triangle of L is
read.
"""

from __future__ import annotations

from ..node import Node
from ..op import Aval
from .composite import composite
from .contraction import matmul
from .host import back, on_host, stays
from .matrices import adjoint, conjugated, identity
from .solving import solve_triangular, triangular_op


def _solve(b: Node, factor: Node, upper: bool) -> Node:
    device = None
    if not stays(triangular_op, (factor, b)):  # both equations there
        (b, factor), device = on_host((b, factor))
    turned = adjoint(factor)
    first, second = (turned, factor) if upper else (factor, turned)
    half = solve_triangular(first, b, False, False)
    return back((solve_triangular(second, half, True, False),), device)[0]


def _of_factor(g: Node, factor: Node, upper: bool) -> Node:
    """The cotangent of a factor, by that of A."""
    both = g + adjoint(g)
    return matmul(factor, both) if upper else matmul(both, factor)


@conjugated
def _solve_vjp(g: Node, out: Node, b: Node, factor: Node, upper: bool) -> tuple[Node, Node]:
    of_b = cholesky_solve(g, factor, upper)
    return of_b, _of_factor(-matmul(of_b, adjoint(out)), factor, upper)


def _solve_type(b: Node, factor: Node, upper: bool) -> Aval:
    return b.shape, b.dtype


cholesky_solve = composite(
    "cholesky_solve", _solve_type, _solve, vjp=_solve_vjp, params=("upper",), complex=True
)
"""x with A x = b, for b[..., n, k] and a factor[..., n, n] of one batch."""


def _inverse(factor: Node, upper: bool) -> Node:
    return cholesky_solve(identity(factor.shape[-1], factor, factor.shape[:-2]), factor, upper)


@conjugated
def _inverse_vjp(g: Node, out: Node, factor: Node, upper: bool) -> tuple[Node]:
    return (_of_factor(-matmul(matmul(out, g), out), factor, upper),)


cholesky_inverse = composite(
    "cholesky_inverse",
    lambda factor, upper: (factor.shape, factor.dtype),
    _inverse,
    vjp=_inverse_vjp,
    params=("upper",),
    complex=True,
)
"""A⁻¹."""
