"""Products of float8 matrices with scales, under both of PyTorch's names."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT8, DType, bfloat16, float32
from tilewright.ir.location import at_user_line

from ...recording import record

if TYPE_CHECKING:
    from ..._tensor import Tensor


class ScalingType(enum.Enum):
    """The part of a matrix with a scale of its own: the whole, a row, or a block."""

    TensorWise = 0
    RowWise = 1
    BlockWise1x16 = 2
    BlockWise1x32 = 3
    BlockWise1x128 = 4
    BlockWise128x128 = 5


_RECIPES = (
    (ScalingType.TensorWise, ScalingType.TensorWise),
    (ScalingType.RowWise, ScalingType.RowWise),
    (ScalingType.BlockWise1x128, ScalingType.BlockWise1x128),
    (ScalingType.BlockWise1x128, ScalingType.BlockWise128x128),
    (ScalingType.BlockWise128x128, ScalingType.BlockWise1x128),
)
"""The recipes of the two matrices that are multiplied."""


class SwizzleType(enum.Enum):
    """The order of scales in memory."""

    NO_SWIZZLE = 0
    SWIZZLE_32_4_4 = 1


def _scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: DType | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """(input @ mat2) * scale_a * scale_b + bias, for matrices of float8.

    input: [m, k] and mat2: [k, n], of float8_e4m3fn or float8_e5m2 each, in any layout.
    scale_a, scale_b: float32. Either one element each; or shapes (m, 1) and (1, n); or, for blocks
        of 128 along k, shapes (m, k / 128) and (k / 128, n), rounded up. In the last case one of
        them may scale squares, with m / 128 or n / 128, rounded up, in place of m or n.
    bias: [n]. scale_result: one element that divides a float8 result, as on PyTorch's CPU.
    out_dtype: by default the dtype of `input`. use_fast_accum: whether sums may be kept in 14 bits,
        as Hopper does at its fastest; otherwise they are kept in float32.
    """
    dtype = input.dtype if out_dtype is None else out_dtype
    given = (input, mat2, scale_a, scale_b) + (() if bias is None else (bias,))
    if scale_result is None or dtype not in FLOAT8:
        return record(ops.scaled_mm, *given, dtype, use_fast_accum)
    return (record(ops.scaled_mm, *given, float32, use_fast_accum) / scale_result).to(dtype)


def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Tensor | Sequence[Tensor],
    scale_recipe_a: ScalingType | Sequence[ScalingType],
    scale_b: Tensor | Sequence[Tensor],
    scale_recipe_b: ScalingType | Sequence[ScalingType],
    swizzle_a: SwizzleType | Sequence[SwizzleType] | None = None,
    swizzle_b: SwizzleType | Sequence[SwizzleType] | None = None,
    bias: Tensor | None = None,
    output_dtype: DType | None = bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    """`_scaled_mm` with its recipes named: TensorWise, RowWise, or blocks of 128.

    Both matrices share TensorWise or RowWise. With BlockWise1x128 the scales have shapes
    (m, k / 128) and (n, k / 128), rounded up. One of the matrices may have BlockWise128x128
    instead; its scales have shape (r, m / 128) or (r, n / 128), rounded up, where r is k / 128
    rounded up to a multiple of 4. Rows after the first k / 128 are not read. Scales may have any
    layout.
    contraction_dim: empty, or (1, 0), the dimensions that are summed.
    """
    recipes = _only(scale_recipe_a), _only(scale_recipe_b)
    if recipes not in _RECIPES:
        listed = ", ".join(f"({a.name}, {b.name})" for a, b in _RECIPES)
        raise NotImplementedError(
            f"scaled_mm: expected recipes among {listed}, got {recipes[0]} and {recipes[1]}: "
            f"blocks of 16 and 32 are not implemented{at_user_line()}"
        )
    if any(_only(s) not in (None, SwizzleType.NO_SWIZZLE) for s in (swizzle_a, swizzle_b)):
        raise NotImplementedError(
            f"scaled_mm: expected scales in their plain order, without swizzles{at_user_line()}"
        )
    if tuple(contraction_dim) not in ((), (1, 0), (-1, -2), (1, -2), (-1, 0)):
        raise NotImplementedError(
            f"scaled_mm: expected contraction_dim (1, 0), got {contraction_dim}{at_user_line()}"
        )
    scales = _only(scale_a), _only(scale_b)
    if recipes[0] is ScalingType.TensorWise:
        for name, scale in zip(("scale_a", "scale_b"), scales):
            if scale.numel() != 1:
                raise ValueError(f"{name} must have 1 Float element{at_user_line()}")
    elif recipes[0] is not ScalingType.RowWise:
        inner = mat_a.shape[-1]
        first = _of_blocks("scale_a", scales[0], recipes[0], mat_a.shape[0], inner)
        second = _of_blocks("scale_b", scales[1], recipes[1], mat_b.shape[-1], inner)
        scales = first, second.t()
    return _scaled_mm(mat_a, mat_b, *scales, bias, None, output_dtype, use_fast_accum)


def _of_blocks(name: str, scale: Any, recipe: ScalingType, size: int, inner: int) -> Any:
    """The scales of a matrix with `size` rows or columns as (size or blocks of it, blocks of k)."""
    count = ops.blocks(inner)
    whole = recipe is ScalingType.BlockWise1x128
    expected = (size, count) if whole else (-(-count // 4) * 4, ops.blocks(size))
    if tuple(scale.shape) != expected or scale.dtype is not float32:
        raise ValueError(
            f"{name} must have shape {expected[0]} x {expected[1]} Float elements, got "
            f"{scale.dtype} {tuple(scale.shape)}{at_user_line()}"
        )
    return scale if whole else scale[:count].t()


def _only(given: Any) -> Any:
    """The entry of a list of one. (PyTorch takes lists, for scales of several levels.)"""
    if isinstance(given, (list, tuple)):
        if len(given) != 1:
            raise NotImplementedError(
                f"scaled_mm: expected one scale for each matrix, got {len(given)}{at_user_line()}"
            )
        return given[0]
    return given
