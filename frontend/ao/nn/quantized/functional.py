"""torch.ao.nn.quantized.functional: functions of quantized tensors.

Products sum integers. What looks at one element at a time, or averages, is computed of the numbers
for which the integers stand, and rounded to the scale of the input unless another one is given.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line

from ....functions.quantized import (
    QuantizedDType,
    QuantizedTensor,
    quantize_per_tensor,
    quint8,
    with_codes,
)
from .products import dense, product, product_of, require

if TYPE_CHECKING:
    from ...._tensor import Tensor

__all__ = [
    "adaptive_avg_pool2d", "adaptive_avg_pool3d", "avg_pool2d", "avg_pool3d", "celu", "clamp",
    "conv1d", "conv2d", "conv3d", "elu", "hardsigmoid", "hardswish", "hardtanh", "interpolate",
    "leaky_relu", "linear", "max_pool1d", "max_pool2d", "threshold", "upsample",
    "upsample_bilinear", "upsample_nearest",
]  # fmt: skip

Sizes = int | Sequence[int]


def linear(
    input: QuantizedTensor,
    weight: QuantizedTensor,
    bias: Tensor | None = None,
    scale: float | None = None,
    zero_point: int | None = None,
) -> QuantizedTensor:
    """input[..., k] @ weight[n, k]^T + bias[n], at a scale: by default the input's."""
    require("linear", input, weight)
    of, terms = product_of("linear", weight)
    scale = input.q_scale() if scale is None else scale
    zero = input.q_zero_point() if zero_point is None else zero_point
    return product(of, input, weight, bias, scale, zero, channel=input.dim() - 1, terms=terms)


def _conv(dims: int) -> Callable[..., QuantizedTensor]:
    name = f"conv{dims}d"

    def conv(
        input: QuantizedTensor,
        weight: QuantizedTensor,
        bias: Tensor | None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
        scale: float = 1.0,
        zero_point: int = 0,
        dtype: QuantizedDType = quint8,
    ) -> QuantizedTensor:
        if padding_mode != "zeros":
            raise NotImplementedError(f"Only zero-padding is currently supported!{at_user_line()}")
        require(name, input, weight)
        if input.dim() != dims + 2:
            raise ValueError(f"Input shape must be `(N, C, {', '.join('DHW'[-dims:])})`!")
        of, terms = product_of(
            name, weight, stride=stride, padding=padding, dilation=dilation, groups=groups
        )
        return product(of, input, weight, bias, scale, zero_point, dtype=dtype, terms=terms)

    conv.__name__ = conv.__qualname__ = name
    conv.__doc__ = f"The {dims}-d convolution of input[n, c, ...], at a scale."
    return conv


conv1d, conv2d, conv3d = _conv(1), _conv(2), _conv(3)


def _of_codes(name: str) -> Callable[..., QuantizedTensor]:
    """A function that moves elements: of the integers themselves."""

    def apply(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
        _need(name, input)
        return with_codes(input, dense(name), *args, **options)

    apply.__name__ = apply.__qualname__ = name
    return apply


def _of_numbers(name: str) -> Callable[..., QuantizedTensor]:
    """A function of the numbers, rounded to the input's scale, or to one that is given."""

    def apply(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
        _need(name, input)
        return of_numbers(input, dense(name), *args, **options)

    apply.__name__ = apply.__qualname__ = name
    return apply


def of_numbers(
    input: QuantizedTensor,
    function: Callable[..., Any],
    *args: Any,
    scale: float | None = None,
    zero_point: int | None = None,
    **options: Any,
) -> QuantizedTensor:
    """function(the numbers), rounded to a scale: by default the input's."""
    made = function(input.dequantize(), *args, **options)
    scale = input.q_scale() if scale is None else scale
    zero = input.q_zero_point() if zero_point is None else zero_point
    found: QuantizedTensor = quantize_per_tensor(made, scale, zero, input.dtype)
    return found


def _need(name: str, input: Any) -> None:
    if not isinstance(input, QuantizedTensor):
        raise ValueError(f"Input to 'quantized.{name}' must be quantized!")


max_pool1d, max_pool2d = map(_of_codes, ("max_pool1d", "max_pool2d"))
avg_pool2d, avg_pool3d = map(_of_numbers, ("avg_pool2d", "avg_pool3d"))
adaptive_avg_pool2d = _of_numbers("adaptive_avg_pool2d")
adaptive_avg_pool3d = _of_numbers("adaptive_avg_pool3d")
interpolate, upsample = map(_of_numbers, ("interpolate", "upsample"))
upsample_bilinear, upsample_nearest = map(_of_numbers, ("upsample_bilinear", "upsample_nearest"))
hardtanh, leaky_relu, threshold = map(_of_numbers, ("hardtanh", "leaky_relu", "threshold"))
_elu, _celu, _hardswish = map(_of_numbers, ("elu", "celu", "hardswish"))


def elu(
    input: QuantizedTensor, scale: float, zero_point: int, alpha: float = 1.0
) -> QuantizedTensor:
    """ELU, at a scale."""
    return _elu(input, alpha, scale=scale, zero_point=zero_point)


def celu(
    input: QuantizedTensor, scale: float, zero_point: int, alpha: float = 1.0
) -> QuantizedTensor:
    """CELU, at a scale."""
    return _celu(input, alpha, scale=scale, zero_point=zero_point)


def hardswish(input: QuantizedTensor, scale: float, zero_point: int) -> QuantizedTensor:
    """Hardswish, at a scale."""
    return _hardswish(input, scale=scale, zero_point=zero_point)


def hardsigmoid(input: QuantizedTensor, inplace: bool = False) -> QuantizedTensor:
    """Hardsigmoid, at the scale that divides its range into 256 steps."""
    _need("hardsigmoid", input)
    zero = -128 if input.dtype.is_signed else 0
    return of_numbers(input, dense("hardsigmoid"), scale=1 / 256, zero_point=zero)


def clamp(input: QuantizedTensor, min_: float, max_: float) -> QuantizedTensor:
    """The numbers limited to [min_, max_]."""
    _need("clamp", input)
    return of_numbers(input, lambda x: x.clamp(min_, max_))
