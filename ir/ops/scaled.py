"""Products of matrices of float8 with their scales."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import FLOAT8, float32
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .composite import as_dtype
from .contraction import matmul, matmul_fast
from .movement import expand, pad, reshape, slice_axis
from .unary import cast

BLOCK = 128
"""The number of elements along a dimension that share one scale of blocks."""


def blocks(size: int) -> int:
    return -(-size // BLOCK)


def _by_blocks_infer(a: Node, b: Node, scale_a: Node, scale_b: Node) -> Aval:
    assert a.shape[1] == b.shape[0] == scale_a.shape[1] * BLOCK == scale_b.shape[0] * BLOCK
    return Size((a.shape[0], b.shape[1])), float32


def _by_blocks_numpy(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    left = a.astype(np.float32) * np.repeat(scale_a, BLOCK, 1)
    return left @ (b.astype(np.float32) * np.repeat(scale_b, BLOCK, 0))


def _by_blocks_vjp(g: Node, out: Node, a: Node, b: Node, *scales: Node) -> Any:
    if a.requires_grad or b.requires_grad:
        raise NotImplementedError(f"a product of float8 has no derivative{at_user_line()}")
    return NotImplemented  # scales have a derivative


def _by_blocks_decomposed(a: Node, b: Node, scale_a: Node, scale_b: Node) -> Node:
    return matmul(
        cast(a, float32) * _repeated(scale_a, 1), cast(b, float32) * _repeated(scale_b, 0)
    )


matmul_by_blocks = Op(
    "matmul_by_blocks",
    Kind.CONTRACTION,
    _by_blocks_infer,
    vjp=_by_blocks_vjp,
    numpy=_by_blocks_numpy,
    decompose=_by_blocks_decomposed,
    float8=True,
)
"""a[m, k] @ b[k, n] of float8 as float32. Each 128 terms of a sum are multiplied by
scale_a[m, k / 128] and scale_b[k / 128, n]."""


def _repeated(scale: Node, axis: int, size: int | None = None) -> Node:
    """Each entry repeated 128 times along an axis, up to `size` elements."""
    shape = scale.shape
    apart = expand(
        reshape(scale, (*shape[: axis + 1], 1, *shape[axis + 1 :])),
        (*shape[: axis + 1], BLOCK, *shape[axis + 1 :]),
    )
    whole = reshape(apart, (*shape[:axis], shape[axis] * BLOCK, *shape[axis + 1 :]))
    return whole if size is None else slice_axis(whole, axis, 0, size)


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
    if not is_float or not (whole or by_rows or _has_blocks(a, b, scale_a, scale_b)):
        inner = blocks(a.shape[1])
        raise ValueError(
            "Invalid scaling configuration: expected scales of float32, of one element each or of "
            f"shapes ({rows}, 1) and (1, {columns}), or of blocks: ({rows}, {inner}) and "
            f"({inner}, {columns}), one of which may have {blocks(rows)} rows or "
            f"{blocks(columns)} columns instead, got {scale_a.dtype} {tuple(scale_a.shape)} "
            f"and {scale_b.dtype} {tuple(scale_b.shape)}{at_user_line()}"
        )
    for each in bias:
        if tuple(each.shape) != (columns,):
            raise RuntimeError(
                f"Bias must be size {columns} but got {tuple(each.shape)}{at_user_line()}"
            )
    return Size((rows, columns)), dtype


def _has_blocks(a: Node, b: Node, scale_a: Node, scale_b: Node) -> bool:
    """Whether scales are of blocks: 1 x 128 elements of a and 128 x 1 of b, or 128 x 128 of one of
    them."""
    (rows, inner), columns = a.shape, b.shape[1]
    if scale_a.rank != 2 or scale_b.rank != 2:
        return False
    if scale_a.shape[1] != blocks(inner) or scale_b.shape[0] != blocks(inner):
        return False
    found = scale_a.shape[0], scale_b.shape[1]
    return found in ((rows, columns), (rows, blocks(columns)), (blocks(rows), columns))


def _products(a: Node, b: Node, scale_a: Node, scale_b: Node, fast: bool) -> Node:
    """a @ b with its scales, float32."""
    (rows, inner), columns = a.shape, b.shape[1]
    if scale_a.shape.numel() > 1 and scale_a.shape[0] != rows:
        scale_a = _repeated(scale_a, 0, rows)
    if scale_b.shape.numel() > 1 and scale_b.shape[1] != columns:
        scale_b = _repeated(scale_b, 1, columns)
    if scale_a.rank == 2 and scale_a.shape[1] != 1:
        more = scale_a.shape[1] * BLOCK - inner
        a, b = pad(a, (0, 0), (0, more)), pad(b, (0, 0), (more, 0))
        return matmul_by_blocks(a, b, scale_a, scale_b)
    y = (matmul_fast if fast else matmul)(a, b)
    for scale in (scale_a, scale_b):
        y = y * (scale if scale.rank == 2 else reshape(scale, (1, 1)))
    return y


def _scaled_mm(a: Node, b: Node, scale_a: Node, scale_b: Node, *rest: Any) -> Node:
    *bias, dtype, fast = rest
    y = _products(a, b, scale_a, scale_b, fast)
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
"""scaled_mm(a[m, k], b[k, n], scale_a, scale_b, bias[n]?, dtype, fast): a @ b of float8 with
scales, plus bias, in float32 and rounded once. The scales have one element each, or the shapes
[m, 1] and [1, n], or are of blocks (`matmul_by_blocks`), where one of them may be of squares of
128 x 128.
fast: whether `matmul_fast` is the product. Scales of blocks add up 128 terms in float32 anyway."""
