"""Products of matrices in groups whose ends are data, under both of PyTorch's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType, int32
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.composite import as_dtype

from ...recording import record
from ...recording.builders import builder

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _grouped_mm(
    mat_a: Any,
    mat_b: Any,
    offs: Any = None,
    bias: Any = None,
    out_dtype: DType | None = None,
) -> Any:
    """`grouped_mm` with its last arguments by position too."""
    return record(_products, mat_a, mat_b, offs, bias, out_dtype)


def grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    *,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: DType | None = None,
) -> Tensor:
    """One product for each of G groups in one kernel, such as a mixture's experts.

    offs: int32[G], the ends of the groups. Groups follow each other from 0 on; any may be empty.
    mat_a, mat_b: of one floating dtype, in any layout and at any alignment:
        [M, K] @ [G, K, N]: groups of rows of mat_a. The result is [M, N].
        [G, M, K] @ [K, N]: groups of columns of mat_b. The result is [M, N].
        [M, K] @ [K, N]: groups of K. The result is [G, M, N], zeros for an empty group.
        [G, M, K] @ [G, K, N]: no dimension has groups, so offs must be None. The result is
            [G, M, N].
    bias: added to the result, broadcast; it can't vary within the dimension of the groups.
    out_dtype: only the dtype of the matrices, as in PyTorch.

    Rows or columns of the result after the last group are zeros; PyTorch leaves them undefined.
    Differentiable any number of times.
    """
    return record(_products, mat_a, mat_b, offs, bias, out_dtype)


@builder("grouped_mm")
def _products(
    a: Node, b: Node, ends: Node | None, bias: Node | None, out_dtype: DType | None
) -> Node:
    _check(a, b, ends)
    if out_dtype not in (None, a.dtype):
        _fail(f"Grouped gemm output dtype must match `mat_a` dtype {a.dtype}, got {out_dtype}")
    y = ops.grouped_mm(a, b, ends)
    if bias is None:
        return y
    most = [*y.shape[-2:]]  # the largest shape of a bias
    if a.rank != b.rank:
        most[0 if a.rank == 2 else 1] = 1
    given = (*(1,) * (2 - bias.rank), *bias.shape)
    if len(given) > 2 or any(size not in (1, n) for size, n in zip(given, most)):
        _fail(f"grouped_mm: expected a bias that broadcasts to {most}, got {tuple(bias.shape)}")
    return y + as_dtype(bias, y.dtype)


def _check(a: Node, b: Node, ends: Node | None) -> None:
    for name, matrix in (("mat_a", a), ("mat_b", b)):
        if matrix.rank not in (2, 3):
            _fail(f"{name} has to be 2 or 3d, got {matrix.rank}d")
        if not matrix.dtype.is_floating_point:
            _fail(f"Expected {name} to be a floating point matrix, got {matrix.dtype}")
    if a.dtype is not b.dtype:
        _fail(f"expected m1 and m2 to have the same dtype, but got: {a.dtype} != {b.dtype}")
    if a.shape[-1] != b.shape[-2]:
        _fail(
            "contraction dimension of mat_a and mat_b must match, got shapes "
            f"{tuple(a.shape)} and {tuple(b.shape)}"
        )
    if (ends is None) is not (a.rank == b.rank == 3):
        _fail(
            "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d"
        )
    if ends is None:
        if a.shape[0] != b.shape[0]:
            _fail(f"batched dimension has to match, got {a.shape[0]} and {b.shape[0]}")
        return
    if ends.rank != 1:
        _fail(f"offs has to be 1D, got {ends.rank}D")
    if ends.dtype is not int32:
        _fail(f"Offsets have to be int32, got {ends.dtype}")
    for matrix in (a, b):
        if matrix.rank == 3 and matrix.shape[0] != ends.shape[0]:
            _fail(
                f"matrix batch sizes have to match: {matrix.shape[0]} matrices for "
                f"{ends.shape[0]} offsets"
            )


def _fail(message: str) -> None:
    raise RuntimeError(f"{message}{at_user_line()}")
