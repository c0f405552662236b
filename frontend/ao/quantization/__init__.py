"""torch.ao.quantization: models whose weights are integers, for inference.

`quantize_dynamic` is PyTorch's. `quantize_` with its configs has the names and the meaning of
torchao's. Static quantization, which measures the scales of results, isn't there; its layers are
those of `torch.ao.nn.quantized`.
"""

from __future__ import annotations

from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

from .configs import (
    Int4WeightOnlyConfig,
    Int8DynamicActivationInt8WeightConfig,
    Int8WeightOnlyConfig,
    int4_weight_only,
    int8_dynamic_activation_int8_weight,
    int8_weight_only,
    quantize_,
)
from .dynamic import (
    QConfig,
    default_dynamic_qconfig,
    float16_dynamic_qconfig,
    per_channel_dynamic_qconfig,
    quantize_dynamic,
)
from .observers import (
    FakeQuantizeBase,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
)
from .stubs import DeQuantStub, QuantStub

__all__ = [
    "DeQuantStub",
    "FakeQuantizeBase",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "QConfig",
    "QuantStub",
    "default_dynamic_qconfig",
    "float16_dynamic_qconfig",
    "int4_weight_only",
    "int8_dynamic_activation_int8_weight",
    "int8_weight_only",
    "per_channel_dynamic_qconfig",
    "quantize_",
    "quantize_dynamic",
]


def __getattr__(name: str) -> Any:
    if name not in _REFUSED:
        raise AttributeError(f"torch.ao.quantization has no {name!r}")

    def refuse(*args: Any, **options: Any) -> NoReturn:
        raise NotImplementedError(
            f"torch.ao.quantization.{name}: tilewright has no static quantization; "
            f"quantize_dynamic and quantize_ round weights and inputs{at_user_line()}"
        )

    return refuse


_REFUSED = frozenset(
    "HistogramObserver convert fuse_modules fuse_modules_qat get_default_qat_qconfig "
    "get_default_qconfig prepare prepare_qat quantize".split()
)
