"""torch.ao.quantization: models whose weights, and perhaps values, are integers.

`quantize_dynamic`, `prepare`, `convert` and their kin are PyTorch's. `quantize_` with its configs
has the names and the meaning of torchao's.
"""

from __future__ import annotations

import importlib
from typing import Any

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
    quantize_dynamic,
)
from .fake_quantize import (
    FakeQuantize,
    FusedMovingAvgObsFakeQuantize,
    default_fake_quant,
    default_fused_act_fake_quant,
    default_fused_per_channel_wt_fake_quant,
    default_fused_wt_fake_quant,
    default_per_channel_weight_fake_quant,
    default_weight_fake_quant,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from .histograms import (
    HistogramObserver,
)
from .observers import (
    FakeQuantizeBase,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    NoopObserver,
    ObserverBase,
    PerChannelMinMaxObserver,
    PlaceholderObserver,
    RecordingObserver,
)
from .qconfig import (
    QConfig,
    default_dynamic_qconfig,
    default_histogram_observer,
    default_observer,
    default_per_channel_qconfig,
    default_per_channel_weight_observer,
    default_qat_qconfig,
    default_qconfig,
    default_weight_observer,
    float16_dynamic_qconfig,
    get_default_qat_qconfig,
    get_default_qconfig,
    per_channel_dynamic_qconfig,
)
from .stubs import (
    DeQuantStub,
    QuantStub,
)

__all__ = [
    "DEFAULT_QAT_MODULE_MAPPINGS",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS",
    "DeQuantStub",
    "FakeQuantize",
    "FakeQuantizeBase",
    "FusedMovingAvgObsFakeQuantize",
    "HistogramObserver",
    "Int4WeightOnlyConfig",
    "Int8DynamicActivationInt8WeightConfig",
    "Int8WeightOnlyConfig",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "MovingAveragePerChannelMinMaxObserver",
    "NoopObserver",
    "ObserverBase",
    "PerChannelMinMaxObserver",
    "PlaceholderObserver",
    "QConfig",
    "QConfigMapping",
    "QuantStub",
    "QuantWrapper",
    "RecordingObserver",
    "add_quant_dequant",
    "convert",
    "default_dynamic_qconfig",
    "default_fake_quant",
    "default_fused_act_fake_quant",
    "default_fused_per_channel_wt_fake_quant",
    "default_fused_wt_fake_quant",
    "default_histogram_observer",
    "default_observer",
    "default_per_channel_qconfig",
    "default_per_channel_weight_fake_quant",
    "default_per_channel_weight_observer",
    "default_qat_qconfig",
    "default_qconfig",
    "default_weight_fake_quant",
    "default_weight_observer",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "float16_dynamic_qconfig",
    "fuse_known_modules",
    "fuse_modules",
    "fuse_modules_qat",
    "get_default_qat_module_mappings",
    "get_default_qat_qconfig",
    "get_default_qat_qconfig_mapping",
    "get_default_qconfig",
    "get_default_qconfig_mapping",
    "get_default_static_quant_module_mappings",
    "int4_weight_only",
    "int8_dynamic_activation_int8_weight",
    "int8_weight_only",
    "per_channel_dynamic_qconfig",
    "prepare",
    "prepare_qat",
    "propagate_qconfig_",
    "quantize",
    "quantize_",
    "quantize_dynamic",
    "quantize_qat",
]

_LATER = {
    "get_default_qat_qconfig_mapping": "qconfig_mapping",
    "get_default_qconfig_mapping": "qconfig_mapping",
    "QConfigMapping": "qconfig_mapping",
    "fuse_known_modules": "fusing",
    "fuse_modules": "fusing",
    "fuse_modules_qat": "fusing",
    "DEFAULT_QAT_MODULE_MAPPINGS": "static",
    "DEFAULT_STATIC_QUANT_MODULE_MAPPINGS": "static",
    "QuantWrapper": "static",
    "add_quant_dequant": "static",
    "convert": "static",
    "get_default_qat_module_mappings": "static",
    "get_default_static_quant_module_mappings": "static",
    "prepare": "static",
    "prepare_qat": "static",
    "propagate_qconfig_": "static",
    "quantize": "static",
    "quantize_qat": "static",
}
"""Names -> modules that import the layers, which import this package themselves."""


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"torch.ao.quantization has no {name!r}")
    module = importlib.import_module(f".{_LATER[name]}", __name__)
    value = globals()[name] = getattr(module, name)
    return value
