"""Linear equations, inverses and determinants.

`info` is 0 where a matrix is not singular. Otherwise it is the first pivot that is zero, counted
from 1, and the result is NaN.
"""

from __future__ import annotations

from ..dtype import COMPLEX, int32, real_of
from ..node import Node
from ..numeric import indefinite, matrices
from ..op import Aval, Cotangents
from ..shape import Size
from .complex import imag, make
from .contraction import matmul
from .host import TILE, called, routine
from .matrices import by_matrix, lower, upper
from .movement import transpose
from .reduce import sum
from .unary import zeros_like


def _with_info(x: Node, *_: Node) -> tuple[Aval, ...]:
    return (x.shape, x.dtype), (Size(x.shape[:-2]), int32)


def _solve_vjp(g: Node, out: Node, a: Node, b: Node, index: int) -> Cotangents:
    """Giles, "An extended collection of matrix derivative results", 2008, 2.3.1."""
    of_b, _ = called(solve, transpose(a), g)
    return -matmul(of_b, transpose(out)), of_b


solve = routine("solve", lambda a, b: _with_info(b), matrices.solve, 2, vjp=_solve_vjp, tile=TILE)
"""(x, info): a @ x = b, for a[..., n, n] and b[..., n, k] of one batch."""


def _inv_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """Giles 2008, 2.2.3."""
    turned = transpose(out)
    return (-matmul(matmul(turned, g), turned),)


inv = routine("inv", _with_info, matrices.inv, 2, vjp=_inv_vjp, tile=TILE)
"""(the inverse, info)."""


def _triangular_vjp(
    g: Node, out: Node, a: Node, b: Node, is_upper: bool, unit: bool, index: int
) -> Cotangents:
    of_b = solve_triangular(transpose(a), g, not is_upper, unit)
    of_a = -matmul(of_b, transpose(out))
    offset = 1 if unit else 0
    return upper(of_a, offset) if is_upper else lower(of_a, -offset), of_b


triangular_op = routine(
    "solve_triangular",
    lambda a, b, is_upper, unit: ((b.shape, b.dtype),),
    matrices.solve_triangular,
    1,
    ("is_upper", "unit"),
    _triangular_vjp,
    tile=TILE,
)


def solve_triangular(a: Node, b: Node, is_upper: bool, unit: bool) -> Node:
    """x with a @ x = b, for a[..., n, n] of which one triangle is read, and b[..., n, k] of the
    same batch. unit: whether the diagonal counts as 1."""
    return called(triangular_op, a, b, is_upper, unit)[0]


def _det_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """Jacobi's formula."""
    (found,) = called(cofactors, a)
    return (by_matrix(g) * found,)


det = routine("det", lambda a: ((Size(a.shape[:-2]), a.dtype),), matrices.det, 1, vjp=_det_vjp)
"""The determinant."""


def _cofactors_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    """The derivative of det(a) a⁻ᵀ. It is not finite where `a` is singular."""
    turned = transpose(called(inv, a)[0])
    axes = (a.rank - 2, a.rank - 1)
    return (turned * sum(g * out, axes) - matmul(matmul(turned, transpose(g)), out),)


cofactors = routine(
    "cofactors", lambda a: ((a.shape, a.dtype),), matrices.cofactors, 1, vjp=_cofactors_vjp
)
"""det(a) a⁻ᵀ, also where `a` is singular."""


def _slogdet_vjp(g: Node, out: Node, a: Node, index: int) -> Cotangents:
    is_complex = a.dtype.category == COMPLEX
    if index == 0 and not is_complex:
        return (None,)
    if index == 0:  # the sign turns as the imaginary part of the trace of a⁻¹ da
        g = imag(g * out)
    if is_complex:
        g = make(zeros_like(g), g) if index == 0 else make(g, zeros_like(g))
    return (by_matrix(g) * transpose(called(inv, a)[0]),)


slogdet = routine(
    "slogdet",
    lambda a: ((Size(a.shape[:-2]), a.dtype), (Size(a.shape[:-2]), real_of(a.dtype))),
    matrices.slogdet,
    2,
    vjp=_slogdet_vjp,
)
"""(the sign of the determinant, the logarithm of its magnitude)."""


ldl_factor = routine(
    "ldl_factor",
    lambda a, hermitian: (
        (a.shape, a.dtype),
        (Size(a.shape[:-1]), int32),
        (Size(a.shape[:-2]), int32),
    ),
    indefinite.ldl_factor,
    3,
    ("hermitian",),
)
"""(LD, pivots, info) of a symmetric matrix, without a gradient."""

ldl_solve = routine(
    "ldl_solve",
    lambda packed, pivots, b, hermitian: ((b.shape, b.dtype),),
    indefinite.ldl_solve,
    1,
    ("hermitian",),
)
"""x with a @ x = b by the factors of `a`, without a gradient."""
