"""torch.ao.nn.intrinsic.quantized.dynamic: LinearReLU of floats, with a quantized weight."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ....nn.quantized import dynamic
from ...quantized.layers import qint8

if TYPE_CHECKING:
    from ....._tensor import Tensor

__all__ = ["LinearReLU"]


class LinearReLU(dynamic.Linear):
    """max(x[..., in_features] @ weight^T + bias, 0)."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True, dtype: Any = qint8):
        super().__init__(in_features, out_features, bias, dtype)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).relu()

    def _get_name(self) -> str:
        return "DynamicQuantizedLinearReLU"
