"""Products of matrices of float8 with their scales."""

from __future__ import annotations

from typing import Any

from ..dtype import FLOAT8, float32
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .composite import as_dtype
from .contraction import matmul, matmul_fast
from .movement import reshape


def _infer(a: Node, b: Node, scale_a: Node, scale_b: Node, *rest: Any) -> Aval:
    *bias, dtype, _ = rest
    if a.dtype not in FLOAT8 or b.dtype not in FLOAT8:
        raise ValueError(
            f"scaled_mm: expected matrices of float8, got {a.dtype} and {b.dtype}{at_user_line()}"
        )
    if a.rank != 2 or b.rank != 2 or a.shape[1] != b.shape[0]:
        raise RuntimeError(
            f"mat_a and mat_b shapes cannot be multiplied ({tuple(a.shape)} and {tuple(b.shape)})"
            f"{at_user_line()}"
        )
    rows, columns = a.shape[0], b.shape[1]
    whole = scale_a.shape.numel() == scale_b.shape.numel() == 1
    by_rows = tuple(scale_a.shape) == (rows, 1) and tuple(scale_b.shape) == (1, columns)
    is_float = scale_a.dtype is float32 and scale_b.dtype is float32
    if not is_float or not (whole or by_rows):
        raise ValueError(
            "Invalid scaling configuration: expected scales of float32, of one element each or of "
            f"shapes ({rows}, 1) and (1, {columns}), got {scale_a.dtype} {tuple(scale_a.shape)} "
            f"and {scale_b.dtype} {tuple(scale_b.shape)}{at_user_line()}"
        )
    for each in bias:
        if tuple(each.shape) != (columns,):
            raise RuntimeError(
                f"Bias must be size {columns} but got {tuple(each.shape)}{at_user_line()}"
            )
    return Size((rows, columns)), dtype


def _scaled_mm(a: Node, b: Node, scale_a: Node, scale_b: Node, *rest: Any) -> Node:
    *bias, dtype, fast = rest
    y = (matmul_fast if fast else matmul)(a, b)
    for scale in (scale_a, scale_b):
        y = y * (scale if scale.rank == 2 else reshape(scale, (1, 1)))
    for each in bias:
        y = y + as_dtype(each, float32)
    return as_dtype(y, dtype)


scaled_mm = Op(
    "scaled_mm",
    Kind.COMPOSITE,
    _infer,
    params=("dtype", "fast"),
    decompose=_scaled_mm,
    float8=True,
)
"""scaled_mm(a[m, k], b[k, n], scale_a, scale_b, bias[n]?, dtype, fast): a @ b of float8, times
scales of one element each or of shapes [m, 1] and [1, n], plus bias, in float32 and rounded once.
fast: whether `matmul_fast` is the product."""
