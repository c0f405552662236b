"""Quantized numbers: x is about (q - zero) * scale. Products of integers are exact."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation
from .api import f
from .casting import convert, element
from .linear import conv
from .narrow import limits
from .table import operator
from .values import NARROW, Narrow, element_of, on_device

Element = Any
"""A dtype of tensors, or a NumPy dtype of NARROW."""


def _spread(value: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point in a shape that broadcasts with x: one number, one for each element
    along `axis`, or one for each block of `block` elements along it."""
    if value.dim() == 0 or value.numel() == 1:
        return value.reshape(())
    axis %= x.dim()
    if value.dim() == 1 and not block:
        return value.reshape([-1] + [1] * (x.dim() - 1 - axis))
    wide = value.repeat_interleave(block or -(-x.shape[axis] // value.shape[axis]), axis)
    return wide.narrow(axis, 0, x.shape[axis])


def _bounds(kind: Element) -> tuple[int, int]:
    if isinstance(kind, np.dtype):
        return limits(kind)
    info = np.iinfo(kind.np)
    return int(info.min), int(info.max)


def _is_integer(kind: Element) -> bool:
    if isinstance(kind, np.dtype):
        return kind.name.startswith(("int", "uint"))
    return not kind.is_floating_point


def _wide(x: Any) -> Any:
    return x.carrier if isinstance(x, Narrow) else x


def quantize(x: Any, scale: Any, zero: Any, kind: Element, saturate: bool = True) -> Any:
    """round(x / scale) + zero, in the range of `kind`."""
    ratio = x / scale
    if not _is_integer(kind):
        shifted = ratio if zero is None else ratio + zero.to(ratio.dtype)
        return convert(shifted, kind, saturate)
    low, high = _bounds(kind)
    # Halves and bfloat16 can't hold all these integers.
    exact = ratio.to(dtypes.float32) if ratio.dtype in dtypes.HALVES else ratio
    near = f.round(exact)
    if zero is not None:
        near = near + zero.to(near.dtype)
    near = f.clamp(near, low, high)
    if isinstance(kind, np.dtype):
        return Narrow(near.to(NARROW[kind]), kind)
    return near.to(kind)


@operator("QuantizeLinear", either=("zero",), known="function")
def quantize_linear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    device: Any = None,
) -> Any:
    kind = element_of(output_dtype) if output_dtype else dtypes.uint8
    if zero is not None:
        kind = element(zero)
        zero = _spread(_wide(on_device(zero, device)), x, axis, block_size)
        zero = zero.to(dtypes.float32)
    if isinstance(scale, Narrow):
        scale = scale.carrier
    at = element_of(precision) if precision else scale.dtype
    if not at.is_floating_point:
        at = x.dtype
    scale = _spread(scale, x, axis, block_size)
    return quantize(x.to(at), scale.to(at), zero, kind, bool(saturate))


@operator("DequantizeLinear", either=("x", "scale", "zero"), known="function")
def dequantize_linear(
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    device: Any = None,
) -> Any:
    scale = _wide(on_device(scale, device))
    to = element_of(output_dtype) if output_dtype else scale.dtype
    q = _wide(on_device(x, device))
    spread = _spread(scale, q, axis, block_size)
    # Integers of 32 bits don't fit into float32.
    between = dtypes.float64 if q.dtype in (dtypes.int32, dtypes.uint32) else dtypes.float32
    value = q.to(between)
    if zero is not None:
        value = value - _spread(_wide(on_device(zero, device)), q, axis, block_size).to(between)
    return (value * spread.to(between)).to(to)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(x: Any) -> Any:
    """uint8 with the scale and the zero point that its own range asks for."""
    low = f.clamp(f.amin(x), max=0.0)
    high = f.clamp(f.amax(x), min=0.0)
    scale = (high - low) / 255
    zero = f.clamp(f.round(-low / scale), 0, 255)
    zero = f.where(scale == 0, 0.0, zero)
    return quantize(x, scale, zero, dtypes.uint8), scale, zero.to(dtypes.uint8)


def _integers(x: Any, zero: Any, shape: Any = None) -> Any:
    """x - zero as int32."""
    wide = x.to(dtypes.int32)
    if zero is None:
        return wide
    zero = zero.to(dtypes.int32)
    return wide - (zero if shape is None or zero.dim() == 0 else zero.reshape(shape))


@operator("MatMulInteger")
def matmul_integer(a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    rows = None if a_zero is None or a_zero.dim() != 1 or a_zero.numel() == 1 else (-1, 1)
    return _product(_integers(a, a_zero, rows), _integers(b, b_zero))


def _product(a: Any, b: Any) -> Any:
    """A product of small integers. float64 holds all the sums exactly."""
    return f.matmul(a.to(dtypes.float64), b.to(dtypes.float64)).to(dtypes.int32)


@operator("ConvInteger")
def conv_integer(x: Any, w: Any, x_zero: Any = None, w_zero: Any = None, **options: Any) -> Any:
    channels = [-1] + [1] * (w.dim() - 1)
    wide = _integers(x, x_zero).to(dtypes.float64)
    return conv(wide, _integers(w, w_zero, channels).to(dtypes.float64), **options).to(dtypes.int32)


def _column(scale: Any, rank: int) -> Any:
    """A number for each output channel."""
    return scale if scale.dim() == 0 else scale.reshape([-1] + [1] * (rank - 2))


@operator("QLinearConv")
def qlinear_conv(
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
    **options: Any,
) -> Any:
    total = conv_integer(x, w, x_zero, w_zero, **options).to(dtypes.float64)
    if bias is not None:
        total = total + _column(bias.to(dtypes.float64), x.dim())
    scale = (x_scale.double() * _column(w_scale.double(), x.dim())) / y_scale.double()
    return quantize(total * scale, _one(total), y_zero, y_zero.dtype)


@operator("QLinearMatMul")
def qlinear_matmul(
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any,
) -> Any:
    total = matmul_integer(a, b, a_zero, b_zero).to(dtypes.float64)
    left = a_scale.double() if a_scale.dim() == 0 else a_scale.double().reshape(-1, 1)
    scale = left * b_scale.double() / y_scale.double()
    return quantize(total * scale, _one(total), y_zero, y_zero.dtype)


def _one(x: Any) -> Any:
    return creation.ones((), dtype=x.dtype, device=x.device)
