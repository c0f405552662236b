"""Products of quantized tensors: sums of integers, rounded to the scale of the result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ....functions.quantized import QuantizedDType, QuantizedTensor, qint8, quint8
from ....nn import functional as F

if TYPE_CHECKING:
    from ...._tensor import Tensor

Product = Callable[[Any, Any], Any]
EXACT = 512
"""The most products of codes whose sum float32 holds exactly: each is below 2**15."""


def require(name: str, input: Any, weight: Any) -> None:
    """Raise unless the operands have the types that PyTorch's quantized products take."""
    for given, wanted, what in ((input, quint8, "activations"), (weight, qint8, "weights")):
        if not isinstance(given, QuantizedTensor) or given.dtype is not wanted:
            found = getattr(given, "dtype", type(given).__name__)
            raise NotImplementedError(
                f"{name}: expected {what} of {wanted}, got {found}: quantize_per_tensor makes them"
                f"{at_user_line()}"
            )


def product(
    of: Product,
    input: QuantizedTensor,
    weight: QuantizedTensor,
    bias: Tensor | None,
    scale: float,
    zero_point: int,
    *,
    dtype: QuantizedDType = quint8,
    channel: int = 1,
    terms: int = 0,
    least: int | None = None,
) -> QuantizedTensor:
    """of(x, w) + bias, as integers of `dtype`.

    of: a product of two dense tensors. channel: the dimension of the result along which the
    weight's scales and the bias lie. terms: how many products an element is the sum of. least: the
    least integer of the result, if there is one.
    """
    sums, step, shape = _sums(of, input, weight, channel, terms)
    sums = sums.float()
    if bias is not None:
        sums = sums + bias.detach().float().view(shape) / step
    codes = (sums * (step / np.float32(scale))).round() + zero_point
    low, high = dtype.range
    codes = codes.clamp(low if least is None else max(low, least), high)
    return QuantizedTensor(codes.to(dtype.stored), scale, zero_point, dtype)


def floats(
    of: Product,
    input: QuantizedTensor,
    weight: QuantizedTensor,
    bias: Tensor | None,
    *,
    channel: int,
    terms: int,
) -> Any:
    """The same product as floats."""
    sums, step, shape = _sums(of, input, weight, channel, terms)
    result = sums.float() * step
    return result if bias is None else result + bias.view(shape)


def _sums(
    of: Product, input: QuantizedTensor, weight: QuantizedTensor, channel: int, terms: int
) -> tuple[Any, Any, list[int]]:
    """(sums of products of integers, the number for which one of them stands, the shape in which a
    vector lies along the channels)."""
    kind = dtypes.float32 if terms <= EXACT else dtypes.float64
    sums = of(_centred(input, kind), _centred(weight, kind))
    shape = [1] * sums.dim()
    shape[channel] = -1
    per: Any = weight._scale
    by_channel = weight._axis is not None
    step = (per.float().view(shape) if by_channel else np.float32(per)) * np.float32(input._scale)
    return sums, step, shape


def _centred(q: QuantizedTensor, kind: dtypes.DType) -> Any:
    """The integers, of which 0 stands for 0."""
    zero: Any = q._zero_point
    if q._axis is not None:
        shape = [1] * q.dim()
        shape[q._axis] = -1
        zero = zero.view(shape).to(kind)
    return q._codes.to(kind) - zero


def dense(name: str) -> Any:
    """A function of torch.nn.functional."""
    return getattr(F, name)


def product_of(name: str, weight: QuantizedTensor, **options: Any) -> tuple[Product, int]:
    """(a function of torch.nn.functional with options, the terms of each of its sums)."""
    function = dense(name)
    terms = weight.numel() // weight.shape[0]
    return lambda x, w: function(x, w, None, **options), terms
