"""Powers and exponentials of matrices, products of vectors, as in torch.linalg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import NARROW
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ..functions import products
from ..functions.arguments import into
from ..functions.ranges import arange
from ..functions.spellings import also_named, by_numpys_names
from ..recording import record
from ..recording.builders import builder
from .calling import need_float, need_square
from .solving import inv

if TYPE_CHECKING:
    from .._tensor import Tensor


@builder("linalg_matrix_exp")
def _matrix_exp(a: Node) -> Node:
    need_square("linalg.matrix_exp", a)
    need_float("linalg.matrix_exp", a)
    if a.dtype in NARROW:
        (found,) = ops.called(ops.matrix_exp, ops.cast(a, dtypes.float32))
        return ops.cast(found, a.dtype)
    return ops.called(ops.matrix_exp, a)[0]


def matrix_exp(A: Tensor) -> Tensor:
    """The exponential of a square matrix, A⁰ / 0! + A¹ / 1! + …: [*, n, n].

    Computed by Padé approximants (Higham, "The scaling and squaring method for the matrix
    exponential revisited", 2005). Gradient: Najfeld and Havel, 1995.
    """
    return record(_matrix_exp, A)


@also_named(input="A")
def matrix_power(A: Tensor, n: int, *, out: Tensor | None = None) -> Tensor:
    """The product of n copies of a square matrix: [*, n, n]; for n < 0 of copies of its inverse."""
    if A.dim() < 2 or A.shape[-1] != A.shape[-2]:
        raise RuntimeError(
            "linalg.matrix_power: A must be batches of square matrices, got shape "
            f"{tuple(A.shape)}{at_user_line()}"
        )
    return into(out, _power(inv(A), -n) if n < 0 else _power(A, n))


@builder("linalg_matrix_power")
def _no_power(square: Node) -> Node:
    return ops.flat_in(square, ops.identity(square.shape[-1], square, square.shape[:-2]))


def _power(square: Tensor, n: int) -> Tensor:
    if n == 0:
        return record(_no_power, square)
    found = None
    while n:
        if n % 2:
            found = square if found is None else products.matmul(found, square)
        n //= 2
        if n:
            square = products.matmul(square, square)
    assert found is not None
    return found.clone() if found is square else found


def vander(x: Tensor, *, N: int | None = None) -> Tensor:
    """The powers 0, 1, …, N - 1 of the elements of a vector, in columns: [*, n, N]. N is n by
    default."""
    if N is not None and N <= 1:
        raise RuntimeError(f"N must be greater than 1.{at_user_line()}")
    x = x.unsqueeze(0) if not x.dim() else x
    if x.dtype in NARROW or x.dtype is dtypes.bool_:
        raise RuntimeError(
            "linalg.vander supports floating point, complex, and integer tensors, but got "
            f"{x.dtype}{at_user_line()}"
        )
    count = x.shape[-1] if N is None else N
    wide = x if x.dtype.is_differentiable else x.long()
    return wide.unsqueeze(-1) ** arange(count, device=x.device)


@by_numpys_names
def cross(input: Tensor, other: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The cross product of vectors of 3 elements along `dim`, with broadcasting."""
    if input.dim() != other.dim():
        raise RuntimeError(
            f"linalg.cross: inputs must have the same number of dimensions.{at_user_line()}"
        )
    if input.shape[dim] != 3 or other.shape[dim] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {dim} must have length 3. Got {input.shape[dim]} and "
            f"{other.shape[dim]}{at_user_line()}"
        )
    return into(out, products.cross(input, other, dim), cast=False)
