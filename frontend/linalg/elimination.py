"""LU and LDL factors, and solutions by them, as in torch.linalg."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.numeric.indefinite import require_lapack

from .. import return_types
from ..functions.arguments import into
from ..functions.spellings import also_named
from ..recording import record, record_fallible
from ..recording.builders import builder
from .calling import (
    all_into,
    in_one_batch,
    kind_name,
    need_float,
    need_matrices,
    need_same_dtype,
    need_square,
    need_wide,
)
from .catching import caught

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .._tensor import Tensor


def _need_pivots(pivot: bool) -> None:
    if not pivot:
        raise RuntimeError(
            f"linalg.lu_factor: LU without pivoting is not implemented on the CPU{at_user_line()}"
        )


@builder("linalg_lu_factor", gradient="LinalgLuFactorExBackward0")
def _lu_factor(a: Node, check: bool) -> tuple[Node, Node, Node]:
    if a.rank < 2:
        raise RuntimeError(
            "torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: "
            f"{list(a.shape)} instead{at_user_line()}"
        )
    need_wide("lu_cpu", a)
    found, pivots, info = ops.called(ops.lu, a)
    if check:
        found = ops.kept(found, ops.succeeded(info, min(a.shape[-2:]), "lu_factor"))
    return found, pivots, info


def lu_factor(
    A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None
) -> return_types.LU:
    """A = P L U in a compact form. A: [*, m, n].

    LU: U, and below the diagonal L, whose diagonal is 1. pivots: int32, from 1 on; row i was
    exchanged with row pivots[i]. RuntimeError if U has a zero on its diagonal.
    """
    _need_pivots(pivot)
    found = caught(record_fallible(_lu_factor, A, True))[:2]
    return all_into(out, return_types.linalg_lu_factor(*found))


def lu_factor_ex(
    A: Tensor,
    *,
    pivot: bool = True,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.CheckedLU:
    """`lu_factor`, and int32 `info`: 0, or the first diagonal element of U that is zero."""
    _need_pivots(pivot)
    call = record_fallible if check_errors else record
    found = call(_lu_factor, A, bool(check_errors))
    return all_into(out, return_types.linalg_lu_factor_ex(*found))


def _unpacked(packed: Node, pivots: Node) -> tuple[Node, Node, Node]:
    """(P, L, U)."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    left = ops.slice_axis(packed, packed.rank - 1, 0, k)
    left = ops.on_diagonal(left, ops.full_like(left, 1), ops.lower(left, -1))
    right = ops.upper(ops.slice_axis(packed, packed.rank - 2, 0, k))
    # Column i of P has its 1 in the row that became row i.
    order = ops.by_column(_order(pivots, m))
    rows = ops.positions_along(0, (m, 1))
    ones = ops.eq(rows, ops.expand(order, (*order.shape[:-2], m, m)))
    return ops.cast(ones, packed.dtype), left, right


def _order(pivots: Node, rows: int) -> Node:
    return ops.called(ops.permutation, pivots, rows)[0]


@builder("linalg_lu", gradient="LinalgLuBackward0")
def _lu(a: Node) -> tuple[Node, Node, Node]:
    if a.rank < 2:
        raise RuntimeError(
            f"linalg.lu: Expected tensor with 2 or more dimensions. Got size: {list(a.shape)} "
            f"instead{at_user_line()}"
        )
    packed, pivots, _ = _lu_factor(a, False)
    return _unpacked(packed, pivots)


def lu(A: Tensor, *, pivot: bool = True, out: Sequence[Tensor] | None = None) -> return_types.PLU:
    """A = P L U: a permutation, a lower and an upper triangular matrix. A: [*, m, n]."""
    _need_pivots(pivot)
    return all_into(out, return_types.linalg_lu(*record(_lu, A)))


@builder("lu_unpack")
def _lu_unpack(packed: Node, pivots: Node) -> tuple[Node, Node, Node]:
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype."
            " Note: this function is intended to be used with the output produced by "
            f"torch.linalg.lu_factor{at_user_line()}"
        )
    return _unpacked(packed, pivots)


def lu_unpack(
    LU_data: Tensor,
    LU_pivots: Tensor,
    unpack_data: bool = True,
    unpack_pivots: bool = True,
    *,
    out: Sequence[Tensor] | None = None,
) -> return_types.PLU:
    """(P, L, U) of the compact form. Parts that aren't unpacked are empty."""
    p, left, right = record(_lu_unpack, LU_data, LU_pivots)
    none = LU_data.new_empty(0)
    return all_into(
        out,
        return_types.lu_unpack(
            p if unpack_pivots else none,
            left if unpack_data else none,
            right if unpack_data else none,
        ),
    )


@builder("linalg_lu_solve")
def solved_by_lu(packed: Node, pivots: Node, b: Node, left: bool, adjoint: bool) -> Node:
    name = "linalg.lu_solve"
    need_float(name, packed)
    need_same_dtype(name, packed, b, "LU and B")
    if pivots.dtype is not dtypes.int32:
        raise RuntimeError(
            f"{name}: pivots should be a Tensor of scalar type torch.int32{at_user_line()}"
        )
    need_square(name, packed, "LU")
    need_matrices(name, b, "B")
    n = packed.shape[-1]
    if b.shape[-2 if left else -1] != n:
        word = ("A", "AX") if left else ("A", "XA")
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation {word[1]} = B "
            f"({n}x{n} and {b.shape[-2]}x{b.shape[-1]}){at_user_line()}"
        )
    need_wide("lu_solve_cpu", packed)
    if not left:  # X A = B is Aᴴ Xᴴ = Bᴴ
        return ops.adjoint(solved_by_lu(packed, pivots, ops.adjoint(b), True, not adjoint))
    order = _order(pivots, n)
    packed, b = in_one_batch(packed, b)
    order = ops.expand(order, (*b.shape[:-2], n))
    if adjoint:  # Uᴴ Lᴴ Pᵀ X = B
        turned = ops.adjoint(packed)
        y = _substituted(turned, b, False, False)
        z = _substituted(turned, y, True, True)
        return _rows(z, ops.argsort(order, order.rank - 1))
    y = _substituted(packed, _rows(b, order), False, True)
    return _substituted(packed, y, True, False)


def _substituted(a: Node, b: Node, upper: bool, unit: bool) -> Node:
    return ops.called(ops.triangular_op, a, b, upper, unit)[0]


def _rows(x: Node, order: Node) -> Node:
    """The rows of matrices in another order."""
    return ops.take_along(x, ops.expand(ops.by_row(order), x.shape), x.rank - 2)


def lu_solve(
    LU: Tensor,
    pivots: Tensor,
    B: Tensor,
    *,
    left: bool = True,
    adjoint: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """X with A X = B (or X A = B), for the factors of A; `adjoint`: of Aᴴ."""
    return into(out, record(solved_by_lu, LU, pivots, B, bool(left), bool(adjoint)), cast=False)


# ---- symmetric matrices that aren't definite -------------------------------------------------


@builder("linalg_ldl_factor", gradient="LinalgLdlFactorExBackward0")
def _ldl_factor(a: Node, hermitian: bool, check: bool) -> tuple[Node, Node, Node]:
    name = "torch.linalg.ldl_factor_ex"
    need_square(name, a)
    need_float(name, a)
    need_wide("ldl_factor_kernel_cpu", a)
    require_lapack("torch.linalg.ldl_factor")
    found, pivots, info = ops.called(ops.ldl_factor, a, hermitian)
    if check:
        found = ops.kept(found, ops.succeeded(info, a.shape[-1], "ldl_factor"))
    return found, pivots, info


@also_named(input="A")
def ldl_factor(
    A: Tensor, *, hermitian: bool = False, out: Sequence[Tensor] | None = None
) -> return_types.LDL:
    """A = L D Lᵀ of a symmetric A in LAPACK's compact form, without a gradient: [*, n, n].

    D has blocks of one and two rows. The lower triangle of A is read. hermitian: A = L D Lᴴ.
    RuntimeError if a block of D is zero. Needs SciPy.
    """
    found = caught(record_fallible(_ldl_factor, A, bool(hermitian), True))[:2]
    return all_into(out, return_types.linalg_ldl_factor(*found))


@also_named(input="A")
def ldl_factor_ex(
    A: Tensor,
    *,
    hermitian: bool = False,
    check_errors: bool = False,
    out: Sequence[Tensor] | None = None,
) -> return_types.CheckedLDL:
    """`ldl_factor`, and int32 `info`: 0, or the first block of D that is zero."""
    call = record_fallible if check_errors else record
    found = call(_ldl_factor, A, bool(hermitian), bool(check_errors))
    return all_into(out, return_types.linalg_ldl_factor_ex(*found))


@builder("linalg_ldl_solve")
def _ldl_solve(packed: Node, pivots: Node, b: Node, hermitian: bool) -> Node:
    name = "torch.linalg.ldl_solve"
    need_square(name, packed, "LD")
    need_matrices(name, b, "B")
    if pivots.dtype.is_floating_point:
        raise RuntimeError(
            f"{name}: Expected pivots to be integers. Got {kind_name(pivots)}{at_user_line()}"
        )
    if pivots.shape != packed.shape[:-1]:
        raise RuntimeError(
            f"{name}: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with "
            f"shape {list(pivots.shape)} instead{at_user_line()}"
        )
    need_same_dtype(name, packed, b, "LD and B")
    if b.shape[-2] != packed.shape[-1]:
        raise RuntimeError(
            f"{name}: Incompatible shapes of A and B for the equation AX = B "
            f"({packed.shape[-2]}x{packed.shape[-1]} and {b.shape[-2]}x{b.shape[-1]})"
            f"{at_user_line()}"
        )
    need_float(name, packed)
    need_wide("ldl_solve_kernel_cpu", packed)
    require_lapack(name)
    packed, b = in_one_batch(packed, b)
    pivots = ops.expand(ops.cast(pivots, dtypes.int32), b.shape[:-1])
    return ops.called(ops.ldl_solve, packed, pivots, b, hermitian)[0]


def ldl_solve(
    LD: Tensor, pivots: Tensor, B: Tensor, *, hermitian: bool = False, out: Tensor | None = None
) -> Tensor:
    """X with A X = B for the factors of `ldl_factor`, without a gradient. Needs SciPy."""
    return into(out, record(_ldl_solve, LD, pivots, B, bool(hermitian)), cast=False)
