"""torch.ao.nn.intrinsic.quantized: quantized layers whose results are cut off at zero."""

from __future__ import annotations

from typing import Any

from ..... import nn
from .....nn.functional import relu
from ...quantized import layers, pointwise
from . import dynamic as dynamic

__all__ = ["BNReLU2d", "BNReLU3d", "ConvReLU1d", "ConvReLU2d", "ConvReLU3d", "LinearReLU"]


class LinearReLU(layers.Linear):
    """max(x[..., in_features] @ weight^T + bias, 0), of quantized tensors."""

    _has_relu = True

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: Any = layers.qint8
    ):
        super().__init__(in_features, out_features, bias, dtype)

    def _get_name(self) -> str:
        return "QuantizedLinearReLU"


class ConvReLU1d(layers.Conv1d):
    """max(a convolution of input[n, c, w], 0), quantized."""

    _has_relu = True

    def _get_name(self) -> str:
        return "QuantizedConvReLU1d"


class ConvReLU2d(layers.Conv2d):
    """max(a convolution of input[n, c, h, w], 0), quantized."""

    _has_relu = True

    def _get_name(self) -> str:
        return "QuantizedConvReLU2d"


class ConvReLU3d(layers.Conv3d):
    """max(a convolution of input[n, c, d, h, w], 0), quantized."""

    _has_relu = True

    def _get_name(self) -> str:
        return "QuantizedConvReLU3d"


class _WithReLU:
    """What cuts off a norm's results before they are rounded. It stands between `BatchNorm`'s
    rounding and the norm itself among the bases of a class."""

    def forward(self, input: Any) -> Any:
        return relu(super().forward(input))  # type: ignore[misc]


class BNReLU2d(pointwise.BatchNorm, _WithReLU, nn.BatchNorm2d):
    """max(a batch norm of input[n, c, h, w], 0), quantized."""


class BNReLU3d(pointwise.BatchNorm, _WithReLU, nn.BatchNorm3d):
    """max(a batch norm of input[n, c, d, h, w], 0), quantized."""
