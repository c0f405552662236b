"""Linear equations, inverses and determinants, as in torch.linalg."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast

from .. import return_types
from ..functions.arguments import into
from ..functions.spellings import also_named, by_numpys_names
from ..recording import record, record_fallible
from ..recording.builders import FLOAT32, builder
from .calling import (
    all_into,
    as_columns,
    from_columns,
    in_one_batch,
    is_lapacks,
    is_vector,
    kind_name,
    need_float,
    need_matrices,
    need_precise,
    need_same_dtype,
    need_square,
    need_wide,
)
from .catching import caught

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._tensor import Tensor

ON_CPU = {"cpu": FLOAT32}


# ---- equations -------------------------------------------------------------------------------


@builder("linalg_solve_ex", casts=ON_CPU)
def _solve(a: Node, b: Node, left: bool, check: bool) -> tuple[Node, Node]:
    name = "linalg.solve"
    need_float(name, a)
    need_square(name, a)
    need_same_dtype(name, a, b)
    need_wide("lu_cpu", a)
    if is_vector(a, b):
        if not left:
            raise RuntimeError(
                "linalg.solve: Vector broadcasting of the left hand side is not supported for "
                f"left=False. In this case linalg.solve is equivalent to B / A.squeeze(-1)"
                f"{at_user_line()}"
            )
        found, info = _solved(a, ops.by_row(b), check)
        return ops.squeeze(found, (found.rank - 1,)), info
    need_matrices(name, b, "B")
    _need_fitting(name, a, b, left)
    if left:
        return _solved(a, b, check)
    found, info = _solved(ops.transpose(a), ops.transpose(b), check)
    return ops.transpose(found), info


def _need_fitting(name: str, a: Node, b: Node, left: bool) -> None:
    if b.shape[-2 if left else -1] != a.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {'AX' if left else 'XA'} = B "
            f"({a.shape[-2]}x{a.shape[-1]} and {b.shape[-2]}x{b.shape[-1]}){at_user_line()}"
        )


def _solved(a: Node, b: Node, check: bool) -> tuple[Node, Node]:
    """(x, info) of a batch of equations a @ x = b. info: one for each matrix of `a`."""
    if a.rank == 2 and b.rank > 2:  # many right sides of one matrix
        found, info = ops.called(ops.solve, a, as_columns(b))
        found = from_columns(found, b.shape)
    else:
        whole, right = in_one_batch(a, b)
        found, info = ops.called(ops.solve, whole, right)
        extra = info.rank - (a.rank - 2)
        steps = [1] * info.rank
        stops = [1] * extra + [*a.shape[:-2]]
        if 0 not in info.shape:
            info = ops.slice_(info, [0] * info.rank, stops, steps)
        info = ops.reshape(info, a.shape[:-2]) if info.rank != a.rank - 2 else info
    if check:
        found = ops.kept(found, ops.succeeded(info, a.shape[-1], "torch.linalg.solve"))
    return found, info


def solve(A: Tensor, B: Tensor, *, left: bool = True, out: Tensor | None = None) -> Tensor:
    """X with A X = B, or X A = B. A: [*, n, n]; B: [*, n, k], [*, n] or [n].

    LinAlgError if A is singular. Gradient: Giles, "An extended collection of matrix derivative
    results", 2008, 2.3.1.
    """
    found = caught(record_fallible(_solve, A, B, bool(left), True))
    return into(out, found[0], cast=False)


def solve_ex(
    A: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.Solved:
    """`solve`, and for each matrix int32 `info`: 0, or the pivot that is zero. The result is NaN
    there, and no error is raised unless `check_errors`."""
    call = record_fallible if check_errors else record
    found = call(_solve, A, B, bool(left), bool(check_errors))
    return all_into(out, return_types.linalg_solve_ex(*found))


@builder("linalg_solve_triangular")
def solved_triangular(a: Node, b: Node, upper: bool, left: bool, unit: bool) -> Node:
    name = "linalg.solve_triangular"
    need_square(name, a)
    need_matrices(name, b, "B")
    _need_fitting(name, a, b, left)
    need_same_dtype(name, a, b)
    need_wide("triangular_solve_cpu", a)
    if not left:
        turned = solved_triangular(ops.transpose(a), ops.transpose(b), not upper, True, unit)
        return ops.transpose(turned)
    if a.rank == 2 and b.rank > 2:
        (found,) = ops.called(ops.triangular_op, a, as_columns(b), upper, unit)
        return from_columns(found, b.shape)
    return ops.called(ops.triangular_op, *in_one_batch(a, b), upper, unit)[0]


@also_named(input="A")
def solve_triangular(
    A: Tensor,
    B: Tensor,
    *,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """X with A X = B (or X A = B), for a triangular A of which the other triangle isn't read.

    unitriangular: whether the diagonal counts as 1. A zero on it gives infinities, and no error.
    """
    found = record(solved_triangular, A, B, bool(upper), bool(left), bool(unitriangular))
    return into(out, found, cast=False)


# ---- inverses --------------------------------------------------------------------------------


@builder("linalg_inv_ex", casts=ON_CPU)
def inverse(a: Node, check: bool) -> tuple[Node, Node]:
    need_square("linalg.inv", a)
    need_float("linalg.inv", a)
    need_precise("linalg.inv", a)
    found, info = ops.called(ops.inv, a)
    if check:
        found = ops.kept(found, ops.succeeded(info, a.shape[-1], "linalg.inv"))
    return found, info


def inv(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The inverse of a square matrix: [*, n, n]. LinAlgError if it is singular."""
    return into(out, caught(record_fallible(inverse, A, True))[0], cast=False)


def inv_ex(
    A: Tensor, *, check_errors: bool = False, out: Sequence[Tensor] | None = None
) -> return_types.Inverse:
    """`inv`, and for each matrix int32 `info`: 0, or the pivot that is zero. The result is NaN
    there, and no error is raised unless `check_errors`."""
    call = record_fallible if check_errors else record
    found = call(inverse, A, bool(check_errors))
    return all_into(out, return_types.linalg_inv_ex(*found))


def tolerances(
    A: Any, atol: Any, rtol: Any, shape: Sequence[int]
) -> tuple[float | Tensor, float | Tensor]:
    """PyTorch's defaults of atol and rtol. shape: of the matrix."""
    if rtol is None:
        given = atol is not None and (not isinstance(atol, (int, float)) or atol > 0)
        if given and not isinstance(atol, (int, float)):
            # The default where atol is zero.
            from ..functions.masks import where

            usual = max(shape) * _eps(A)
            rtol = where(atol > 0, 0.0, usual)
        else:
            rtol = 0.0 if given else max(shape) * _eps(A)
    return (0.0 if atol is None else atol), rtol


def _eps(A: Any) -> float:
    import numpy as np

    return float(np.finfo(A.dtype.np).eps) if is_lapacks(A.dtype) else 0.0


def tolerance(value: Node | float, a: Node) -> Node:
    """A tolerance in the dtype of singular values of `a`."""
    dtype = a.dtype.to_real()
    if not isinstance(value, Node):
        return ops.constant(float(value), dtype)
    return ops.cast(value, dtype) if value.dtype is not dtype else value


@builder("linalg_pinv")
def _pinv(a: Node, atol: Node | float, rtol: Node | float, hermitian: bool) -> Node:
    if a.rank < 2 or not is_lapacks(a.dtype):
        raise RuntimeError(
            f"linalg.pinv({kind_name(a)}{{{list(a.shape)}}}): expected a tensor with 2 or more "
            f"dimensions of float, double, cfloat or cdouble types{at_user_line()}"
        )
    if hermitian:
        need_square("linalg.eigh", a)
    if 0 in a.shape:
        return ops.clone(ops.transpose(a))
    return ops.pinv(a, tolerance(atol, a), tolerance(rtol, a), hermitian)


@also_named(input="A")
def pinv(
    A: Tensor,
    rcond: float | Tensor | None = None,
    hermitian: bool = False,
    *,
    atol: float | Tensor | None = None,
    rtol: float | Tensor | None = None,
    out: Tensor | None = None,
) -> Tensor:
    """The pseudo-inverse of A: [*, m, n]. Singular values of at most max(atol, rtol times the
    largest) count as zero.

    rtol: max(m, n) times the dtype's eps by default, 0 if atol is given. rcond: its older name.
    hermitian: A is Hermitian, and eigenvalues take the place of singular values.
    Gradient: Golub and Pereyra, 1973.
    """
    rtol = rcond if rtol is None else rtol
    if A.dim() >= 2:
        atol, rtol = tolerances(A, atol, rtol, A.shape[-2:])
    return into(out, caught(record_fallible(_pinv, A, atol, rtol, bool(hermitian))))


# ---- determinants ----------------------------------------------------------------------------


@builder("linalg_det")
def _det(a: Node) -> Node:
    need_square("linalg.det", a)
    need_float("linalg.det", a)
    need_wide("lu_cpu", a)
    return ops.called(ops.det, a)[0]


def det(A: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The determinant of a square matrix: [*, n, n]. The gradient (Jacobi's formula) is right where
    A is singular, too; the second derivative is not finite there."""
    return into(out, record(_det, A), cast=False)


@builder("linalg_slogdet")
def _slogdet(a: Node) -> tuple[Node, ...]:
    need_square("linalg.slogdet", a)
    need_float("linalg.slogdet", a)
    need_precise("linalg.slogdet", a)
    return ops.called(ops.slogdet, a)


def slogdet(A: Tensor, *, out: Sequence[Tensor] | None = None) -> return_types.SignedLog:
    """The sign of the determinant and the logarithm of its magnitude: 0 and -inf if A is
    singular."""
    return all_into(out, return_types.linalg_slogdet(*record(_slogdet, A)))


@builder("logdet")
def log_determinant(a: Node) -> Node:
    need_square("logdet", a)
    need_float("logdet", a)
    need_precise("logdet", a)
    sign, size = ops.called(ops.slogdet, a)
    if a.dtype.is_complex:
        return ops.log(sign) + ops.cast(size, a.dtype)
    return ops.where(sign < 0, ops.full_like(size, math.nan), size)


# ---- tensors as matrices ---------------------------------------------------------------------


@also_named(input="A")
def tensorinv(A: Tensor, ind: int = 2, *, out: Tensor | None = None) -> Tensor:
    """The inverse of A as a map from its last dimensions, all after `ind`, to its first ones."""
    if ind <= 0:
        raise RuntimeError(
            f"Expected a strictly positive integer for 'ind', but got {ind}{at_user_line()}"
        )
    rows, columns = A.shape[:ind], A.shape[ind:]
    if math.prod(rows) != math.prod(columns):
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[ind:]) == "
            f"prod(self.shape[:ind]), but got {math.prod(columns)} != {math.prod(rows)}"
            f"{at_user_line()}"
        )
    flat = A.reshape(math.prod(rows), math.prod(columns))
    return into(out, inv(flat).reshape((*columns, *rows)))


@also_named(input="A", other="B")
def tensorsolve(
    A: Tensor, B: Tensor, dims: Sequence[int] | None = None, *, out: Tensor | None = None
) -> Tensor:
    """X with tensordot(A, X, X.ndim) = B. dims: dimensions of A that are moved to its end first."""
    moved = A
    if dims is not None:
        last = [d % A.dim() for d in dims]
        moved = A.movedim(last, list(range(A.dim() - len(last), A.dim())))
    result = moved.shape[B.dim() :]
    rows, columns = math.prod(moved.shape[: B.dim()]), math.prod(result)
    if rows != columns:
        raise RuntimeError(
            "Expected self to satisfy the requirement prod(self.shape[other.ndim:]) == "
            f"prod(self.shape[:other.ndim]), but got {columns} != {rows}{at_user_line()}"
        )
    return into(out, solve(moved.reshape(rows, columns), B.flatten()).reshape(result))


def _vecdot_name(args: Sequence[Any]) -> str:
    return "SumBackward1" if max(args[0].rank, args[1].rank) > 1 else "VdotBackward0"


@builder("linalg_vecdot", gradient=_vecdot_name)
def _vecdot(x: Node, y: Node, dim: int) -> Node:
    from tilewright.ir.shape import normalize_axis

    need_float("linalg.vecdot", x)
    if x.dtype is not y.dtype:
        need_same_dtype("linalg.vecdot", x, y, "x and y")
    rank = max(x.rank, y.rank)
    axis = normalize_axis(dim, rank)
    product = ops.conj(x) * y
    broadcast(x.shape, y.shape)
    return ops.squeeze(ops.sum(product, (axis,)), (axis,)) if product.rank else product


@by_numpys_names
def vecdot(x: Tensor, y: Tensor, *, dim: int = -1, out: Tensor | None = None) -> Tensor:
    """The sums of x conj … y along `dim`, of one batch of vectors with another."""
    return into(out, record(_vecdot, x, y, int(dim)), cast=False)
