"""Integers in the place of floats: products of bytes, linear layers with narrow weights, rounding
to steps.

A quantized number is an integer q that stands for (q - zero) * step. Jacob et al., Quantization and
Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference, 2018.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..dtype import DType, float32, float64, int8, int32, uint8
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size, broadcast
from .binary import bitwise_and, eq, le, maximum, minimum, shift_right
from .composite import as_dtype, require_float
from .contraction import matmul, matmul_wide
from .generate import constant
from .movement import cat, expand, reshape, slice_axis, transpose, unsqueeze
from .reduce import max as greatest
from .reduce import min as least
from .reduce import sum
from .ternary import where
from .unary import abs, cast, full_like, round

BYTES = (int8, uint8)
FEW = 4
"""Rows up to which a layer with 4-bit weights sums them as they lie. More rows are worth a matrix
of floats, which the product then reads."""
TINY = 1e-30
"""The least step: its reciprocal is far from infinite."""


# ---- products of bytes -----------------------------------------------------------------------


def _infer(a: Node, b: Node) -> Aval:
    if a.dtype not in BYTES or b.dtype not in BYTES:
        raise RuntimeError(
            f"integer_matmul: expected matrices of int8 or uint8, got {a.dtype} and {b.dtype}"
            f"{at_user_line()}"
        )
    if a.rank < 2 or b.rank < 2 or a.shape[-1] != b.shape[-2]:
        raise RuntimeError(
            f"integer_matmul: inner sizes differ: {tuple(a.shape)} @ {tuple(b.shape)}"
            f"{at_user_line()}"
        )
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return Size((*batch, a.shape[-2], b.shape[-1])), int32


def exact_floats(count: int) -> DType:
    """The narrowest type of floats in which `count` products of bytes are summed exactly."""
    return float32 if count * 255 * 255 <= 1 << 24 else float64


def _numpy(a: Any, b: Any) -> Any:
    wide = exact_floats(a.shape[-1]).np
    return np.matmul(a.astype(wide), b.astype(wide)).astype(np.int64).astype(np.int32)


integer_matmul = Op(
    "integer_matmul",
    Kind.CONTRACTION,
    _infer,
    numpy=_numpy,
    onnx="MatMulInteger",
)
"""a[..., m, k] @ b[..., k, n] of int8 and uint8, also of one with the other, with broadcast
batches, in int32: exact for any k up to 33,000."""


# ---- linear layers ---------------------------------------------------------------------------


def _rows(x: Node) -> Node:
    return reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))


def _finished(y: Node, x: Node, bias: tuple[Node, ...]) -> Node:
    """The rows of a layer's result, plus its bias, in the shape and dtype of its input."""
    for each in bias:
        y = y + as_dtype(each, y.dtype)
    return as_dtype(reshape(y, (*x.shape[:-1], y.shape[-1])), x.dtype)


def _layer(name: str, x: Node, weight: Node, inputs: int, dtype: DType, *vectors: Node) -> Aval:
    """The shape and dtype of a layer's result. vectors: what has one entry for each output."""
    require_float(name, x)
    if weight.dtype is not dtype:
        raise RuntimeError(
            f"{name}: expected a weight of {dtype}, got {weight.dtype}{at_user_line()}"
        )
    if x.rank < 1 or x.shape[-1] != inputs:
        raise RuntimeError(
            f"{name}: expected an input of shape [..., {inputs}], got {tuple(x.shape)}"
            f"{at_user_line()}"
        )
    outputs = weight.shape[0]
    for each in vectors:
        if tuple(each.shape) != (outputs,):
            raise RuntimeError(
                f"{name}: expected scales and bias of shape ({outputs},), got {tuple(each.shape)}"
                f"{at_user_line()}"
            )
    return Size((*x.shape[:-1], outputs)), x.dtype


def _linear_int8_infer(x: Node, weight: Node, *vectors: Node) -> Aval:
    return _layer("linear_int8", x, weight, weight.shape[1], int8, *vectors)


def _linear_int8(x: Node, weight: Node, scale: Node, *bias: Node) -> Node:
    # Half types hold a byte exactly, so tensor cores take the weight as a half.
    product = matmul if x.dtype.itemsize >= 4 else matmul_wide
    y = product(_rows(x), transpose(cast(weight, x.dtype)))
    return _finished(y * as_dtype(scale, y.dtype), x, bias)


def _input_grad(g: Node, x: Node, weight: Node) -> Node:
    """The cotangent of a layer's input, for a weight of floats."""
    return reshape(matmul(_rows(g), as_dtype(weight, g.dtype)), x.shape)


def _linear_int8_vjp(g: Node, out: Node, x: Node, weight: Node, scale: Node, *bias: Node) -> Any:
    if any(each.requires_grad for each in (scale, *bias)):
        return NotImplemented
    floats = cast(weight, float32) * unsqueeze(as_dtype(scale, float32), 1)
    return _input_grad(g, x, floats), None, None, *[None for _ in bias]


linear_int8 = Op(
    "linear_int8",
    Kind.COMPOSITE,
    _linear_int8_infer,
    vjp=_linear_int8_vjp,
    decompose=_linear_int8,
)
"""linear_int8(x[..., in], weight[out, in], scale[out], bias[out]?): x @ (weight scale)^T + bias,
for a weight of int8, computed in float32 and rounded once to the dtype of x."""


def _linear_int4_infer(x: Node, weight: Node, scale: Node, offset: Node, *bias: Node) -> Aval:
    fits = weight.rank == 3 and scale.rank == 2 and scale.shape == offset.shape
    if not fits or scale.shape[0] != weight.shape[0] or weight.shape[1] % max(scale.shape[1], 1):
        raise RuntimeError(
            "linear_int4: expected a weight of shape [out, blocks, block / 2], and scales and "
            "offsets of shape [out, groups], with as many blocks in each group, got "
            f"{tuple(weight.shape)}, {tuple(scale.shape)} and {tuple(offset.shape)}{at_user_line()}"
        )
    inputs = weight.shape[1] * weight.shape[2] * 2
    return _layer("linear_int4", x, weight, inputs, uint8, *bias)


def _nibbles(weight: Node) -> tuple[Node, Node]:
    """The numbers of the first and of the second half of each block, as float32."""
    low = bitwise_and(weight, full_like(weight, 15))
    return cast(low, float32), cast(shift_right(weight, full_like(weight, 4)), float32)


def dequantized_int4(weight: Node, scale: Node, offset: Node) -> Node:
    """A weight of 4 bits as float32 [out, in]."""
    (outputs, blocks, half), groups = weight.shape, scale.shape[1]
    numbers = reshape(cat(_nibbles(weight), 2), (outputs, groups, blocks // groups * half * 2))
    floats = numbers * _each(scale, 2) + _each(offset, 2)
    return reshape(floats, (outputs, blocks * half * 2))


def _each(number: Node, axis: int) -> Node:
    return unsqueeze(as_dtype(number, float32), axis)


def _linear_int4(x: Node, weight: Node, scale: Node, offset: Node, *bias: Node) -> Node:
    (outputs, blocks, half), groups = weight.shape, scale.shape[1]
    each = blocks // groups
    rows = _rows(as_dtype(x, float32))
    count = rows.shape[0]
    if count > FEW:
        y = matmul(rows, transpose(dequantized_int4(weight, scale, offset)))
        return _finished(y, x, bias)
    # A row of the weight is read once, for all rows of the input.
    shape = (outputs, count, groups, each, half)
    factor, shift = (
        expand(reshape(as_dtype(n, float32), (outputs, 1, groups, 1, 1)), shape)
        for n in (scale, offset)
    )
    total = None
    for i, number in enumerate(_nibbles(weight)):
        part = reshape(rows, (1, count, groups, each, 2 * half))
        part = slice_axis(part, 4, i * half, (i + 1) * half)
        floats = expand(reshape(number, (outputs, 1, groups, each, half)), shape) * factor + shift
        terms = floats * expand(part, shape)
        total = terms if total is None else total + terms
    assert total is not None
    y = transpose(reshape(sum(total, (2, 3, 4)), (outputs, count)))
    return _finished(y, x, bias)


def _linear_int4_vjp(
    g: Node, out: Node, x: Node, weight: Node, scale: Node, offset: Node, *bias: Node
) -> Any:
    if any(each.requires_grad for each in (scale, offset, *bias)):
        return NotImplemented
    floats = dequantized_int4(weight, scale, offset)
    return _input_grad(g, x, floats), None, None, None, *[None for _ in bias]


linear_int4 = Op(
    "linear_int4",
    Kind.COMPOSITE,
    _linear_int4_infer,
    vjp=_linear_int4_vjp,
    decompose=_linear_int4,
)
"""linear_int4(x[..., in], weight[out, blocks, block / 2], scale[out, groups], offset[out, groups],
bias[out]?): x @ (q scale + offset)^T + bias. Byte j of a block holds q of its places j (low bits)
and j + block / 2 (high bits), so that neighbours in memory are neighbours of the row. A group is
made of whole blocks."""


def _no_gradient(name: str) -> Any:
    def vjp(g: Node, out: Node, x: Node, *rest: Node) -> Any:
        raise NotImplementedError(
            f"{name} has no derivative: its input is rounded to 8 bits{at_user_line()}"
        )

    return vjp


def _step(width: Node) -> Node:
    """The size of a step, from a range that may be empty. NaN stays NaN."""
    return where(le(width, full_like(width, TINY)), full_like(width, 1), width)


def _clamped(x: Node, low: int, high: int) -> Node:
    return minimum(maximum(x, full_like(x, low)), full_like(x, high))


def _linear_dynamic_infer(x: Node, weight: Node, scale: Node, sums: Node, *bias: Node) -> Aval:
    return _layer("linear_dynamic", x, weight, weight.shape[1], int8, scale, sums, *bias)


def _linear_dynamic(x: Node, weight: Node, scale: Node, sums: Node, *bias: Node) -> Node:
    rows = _rows(as_dtype(x, float32))
    if 0 in rows.shape:
        return _finished(full_like(matmul(rows, transpose(cast(weight, float32))), 0), x, bias)
    zero = constant(0, float32)
    low, high = minimum(least(rows, (0, 1)), zero), maximum(greatest(rows, (0, 1)), zero)
    # Of 7 bits, as in PyTorch, whose kernels add pairs of products in 16. They are int8, too.
    step = _step((high - low) * (1 / 127))
    middle = _clamped(round(-low / step), 0, 127)
    codes = cast(_clamped(round(rows / step) + middle, 0, 127), int8)
    product = integer_matmul(codes, transpose(weight)) - cast(middle, int32) * sums
    return _finished(cast(product, float32) * (step * as_dtype(scale, float32)), x, bias)


linear_dynamic = Op(
    "linear_dynamic",
    Kind.COMPOSITE,
    _linear_dynamic_infer,
    vjp=_no_gradient("linear_dynamic"),
    decompose=_linear_dynamic,
)
"""linear_dynamic(x[..., in], weight[out, in], scale[out], sums[out], bias[out]?): x rounded to 128
steps between its least and its largest element (and 0), times a weight of int8 with a scale for
each output. sums: those of the weight's rows, int32. The product is one of integers."""


def _linear_by_rows_infer(x: Node, weight: Node, *vectors: Node) -> Aval:
    return _layer("linear_by_rows", x, weight, weight.shape[1], int8, *vectors)


def _linear_by_rows(x: Node, weight: Node, scale: Node, *bias: Node) -> Node:
    rows = _rows(as_dtype(x, float32))
    if 0 in rows.shape:
        return _finished(full_like(matmul(rows, transpose(cast(weight, float32))), 0), x, bias)
    step = _step(greatest(abs(rows), (1,)) * (1 / 127))
    codes = cast(_clamped(round(rows / step), -127, 127), int8)
    product = cast(integer_matmul(codes, transpose(weight)), float32)
    return _finished(product * step * as_dtype(scale, float32), x, bias)


linear_by_rows = Op(
    "linear_by_rows",
    Kind.COMPOSITE,
    _linear_by_rows_infer,
    vjp=_no_gradient("linear_by_rows"),
    decompose=_linear_by_rows,
)
"""linear_by_rows(x[..., in], weight[out, in], scale[out], bias[out]?): each row of x rounded to 255
steps around 0, times a weight of int8. A row's result doesn't depend on the other rows."""


# ---- rounding to steps -----------------------------------------------------------------------


def _codes(x: Node, step: Node, zero: Node) -> Node:
    return round(x * (full_like(step, 1) / step)) + zero


def _along(number: Node, x: Node, axis: int | None) -> Node:
    """A parameter, or one for each place along an axis, beside the elements of `x`."""
    number = as_dtype(number, float32)
    if axis is None:
        return number
    shape = [1] * x.rank
    shape[axis] = x.shape[axis]
    return reshape(number, tuple(shape))


def _fake_quantize(x: Node, step: Node, zero: Node, axis: int | None, low: int, high: int) -> Node:
    step, zero = _along(step, x, axis), _along(zero, x, axis)
    codes = _codes(as_dtype(x, float32), step, zero)
    first = full_like(codes, low)
    codes = minimum(where(le(first, codes), codes, first), full_like(codes, high))  # also for NaN
    return as_dtype((codes - zero) * step, x.dtype)


def _fake_quantize_vjp(
    g: Node, out: Node, x: Node, step: Node, zero: Node, axis: int | None, low: int, high: int
) -> Any:
    step, zero = _along(step, x, axis), _along(zero, x, axis)
    codes = _codes(as_dtype(x, float32), step, zero)
    inside = bitwise_and(le(full_like(codes, low), codes), le(codes, full_like(codes, high)))
    return where(inside, g, full_like(g, 0)), None, None


fake_quantize = Op(
    "fake_quantize",
    Kind.COMPOSITE,
    lambda x, *_: (x.shape, x.dtype),
    params=("axis", "low", "high"),
    vjp=_fake_quantize_vjp,
    decompose=_fake_quantize,
)
"""fake_quantize(x, step, zero, axis, low, high): the number for which x's integer between low and
high stands. step, zero: 0-d, or of one entry for each place along an axis. The gradient goes
straight through where that integer isn't cut off."""


def quantize(
    x: Node, step: Node, zero: Node, axis: int | None, dtype: DType, low: int, high: int
) -> Node:
    """The integers of `dtype` that stand for the elements of `x`. Halves are rounded to even behind
    the sum with the zero point, other than in `fake_quantize`: so PyTorch has it."""
    step, zero = _along(step, x, axis), _along(zero, x, axis)
    codes = round(x * (full_like(step, 1) / step) + zero)
    if dtype is int32:
        codes, of_nan = cast(codes, float64), low  # float32 doesn't hold the ends
    else:
        of_nan = high if axis is None else 0  # so PyTorch has it
    codes = where(eq(codes, codes), codes, full_like(codes, of_nan))
    return cast(_clamped(codes, low, high), dtype)
