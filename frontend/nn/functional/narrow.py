"""Products with integers of 8 and 4 bits, under PyTorch's private names: packages call them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from ...functions.arguments import into
from ...recording import record

if TYPE_CHECKING:
    from ..._tensor import Tensor

BLOCK = 32
"""The places of a row that share 16 bytes of a weight of 4 bits."""


def _int_mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """input[m, k] @ mat2[k, n] of int8, exactly, in int32. (uint8 is taken, too.)"""
    for name, each in (("input", input), ("mat2", mat2)):
        if each.dim() != 2 or each.dtype not in (dtypes.int8, dtypes.uint8):
            raise RuntimeError(
                f"_int_mm: expected {name} to be a matrix of int8, got {each.dtype} of shape "
                f"{tuple(each.shape)}{at_user_line()}"
            )
    if input.shape[1] != mat2.shape[0]:
        raise RuntimeError(
            f"_int_mm: self.size(1) needs to match mat2.size(0) but got {input.shape[1]} and "
            f"{mat2.shape[0]}{at_user_line()}"
        )
    return into(out, record(ops.integer_matmul, input, mat2))


def _weight_int8pack_mm(input: Tensor, mat2: Tensor, scales: Tensor) -> Tensor:
    """input[m, k] @ (mat2[n, k] * scales[n])^T for a weight of int8."""
    return record(ops.linear_int8, input, mat2, scales)


def _convert_weight_to_int4pack(input: Tensor, innerKTiles: int) -> Tensor:
    """A weight[n, k] of integers from 0 to 15, two of them a byte: uint8 of shape [n, k / 2].

    k must be a multiple of 32. Of each 32 places the first 16 have the low bits. innerKTiles, the
    layout of PyTorch's kernels, changes nothing.
    """
    if input.dim() != 2 or input.shape[1] % BLOCK or input.dtype is not dtypes.int32:
        raise RuntimeError(
            f"_convert_weight_to_int4pack: expected a matrix of int32 with a multiple of {BLOCK} "
            f"columns, got {input.dtype} of shape {tuple(input.shape)}{at_user_line()}"
        )
    rows, columns = input.shape
    halves = input.to(dtypes.uint8).view(rows, columns // BLOCK, 2, BLOCK // 2)
    return (halves[:, :, 0] + halves[:, :, 1] * 16).view(rows, columns // 2)


_convert_weight_to_int4pack_for_cpu = _convert_weight_to_int4pack


def _weight_int4pack_mm(
    input: Tensor, mat2: Tensor, qGroupSize: int, qScaleAndZeros: Tensor
) -> Tensor:
    """input[m, k] @ w^T, w = (q - 8) * scale + zero, for q packed by `_convert_weight_to_int4pack`.

    qScaleAndZeros[k / qGroupSize, n, 2] has a scale and a zero for each group of a row.
    """
    rows, groups = mat2.shape[0], mat2.shape[1] * 2 // qGroupSize
    if qGroupSize % BLOCK or tuple(qScaleAndZeros.shape) != (groups, rows, 2):
        raise RuntimeError(
            f"_weight_int4pack_mm: expected groups of a multiple of {BLOCK} places, and scales and "
            f"zeros of shape ({groups}, {rows}, 2), got groups of {qGroupSize} and "
            f"{tuple(qScaleAndZeros.shape)}{at_user_line()}"
        )
    numbers = qScaleAndZeros.to(dtypes.float32)
    scale, zero = numbers[:, :, 0].t(), numbers[:, :, 1].t()
    weight = mat2.view(rows, mat2.shape[1] * 2 // BLOCK, BLOCK // 2)
    return record(ops.linear_int4, input, weight, scale, zero - 8 * scale)


_weight_int4pack_mm_for_cpu = _weight_int4pack_mm


def linear_int8(input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None) -> Tensor:
    """input[..., k] @ weight[n, k]^T + bias[n] for a weight of int8 with a scale for each row."""
    return record(ops.linear_int8, input, weight, scale, *_given(bias))


def linear_by_rows(
    input: Tensor, weight: Tensor, scale: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same, with each row of the input rounded to 8 bits: a product of integers."""
    return record(ops.linear_by_rows, input, weight, scale, *_given(bias))


def linear_int4(
    input: Tensor, weight: Tensor, scale: Tensor, offset: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same for a weight of 4 bits in the layout of `ops.linear_int4`, with groups of places
    that have a scale and an offset each."""
    return record(ops.linear_int4, input, weight, scale, offset, *_given(bias))


def linear_dynamic(
    input: Tensor, weight: Tensor, scale: Tensor, sums: Tensor, bias: Tensor | None = None
) -> Tensor:
    """The same for int8, with the whole input rounded to 7 bits between its least and largest
    number. sums: of the integers of each row of the weight."""
    return record(ops.linear_dynamic, input, weight, scale, sums, *_given(bias))


def _given(bias: Tensor | None) -> tuple[Tensor, ...]:
    return () if bias is None else (bias,)


LAYERS = linear_int8, linear_by_rows, linear_int4, linear_dynamic
"""What layers with narrow weights compute, one call each."""
