"""QConfigs: how results and weights are observed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.quantized import qint8
from . import fake_quantize
from .fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from .histograms import HistogramObserver
from .observers import (
    Maker,
    MinMaxObserver,
    MovingAverageMinMaxObserver,
    NoopObserver,
    PlaceholderObserver,
    RecordingObserver,
    ReuseInputObserver,
    default_dynamic_quant_observer,
    default_float_qparams_observer,
    default_float_qparams_observer_4bit,
    default_observer,
    default_per_channel_weight_observer,
    default_weight_observer,
    per_channel_weight_observer_range_neg_127_to_127,
    weight_observer_range_neg_127_to_127,
)


class QConfig(NamedTuple):
    """How values and weights are observed: what makes observers."""

    activation: Any
    weight: Any


default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_qconfig = QConfig(default_observer, default_weight_observer)
default_debug_qconfig = QConfig(RecordingObserver, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_quint8_weight_qconfig = QConfig(HistogramObserver, MinMaxObserver)
default_reuse_input_qconfig = QConfig(ReuseInputObserver, NoopObserver)

default_dynamic_qconfig = QConfig(default_dynamic_quant_observer, default_weight_observer)
per_channel_dynamic_qconfig = QConfig(
    default_dynamic_quant_observer, default_per_channel_weight_observer
)
_HALVES = PlaceholderObserver.with_args(dtype=dtypes.float16)
float16_static_qconfig = QConfig(_HALVES, _HALVES)
float16_dynamic_qconfig = QConfig(_HALVES.with_args(is_dynamic=True), _HALVES)
float_qparams_weight_only_qconfig = QConfig(PlaceholderObserver, default_float_qparams_observer)
float_qparams_weight_only_qconfig_4bit = QConfig(
    PlaceholderObserver, default_float_qparams_observer_4bit
)

default_qat_qconfig = QConfig(
    fake_quantize.default_fake_quant, fake_quantize.default_weight_fake_quant
)
default_qat_qconfig_v2 = QConfig(
    fake_quantize.default_fused_act_fake_quant, fake_quantize.default_fused_wt_fake_quant
)
default_dynamic_qat_qconfig = QConfig(
    fake_quantize.default_dynamic_fake_quant, fake_quantize.default_weight_fake_quant
)
default_weight_only_qconfig = QConfig(nn.Identity, fake_quantize.default_weight_fake_quant)
default_activation_only_qconfig = QConfig(fake_quantize.default_fake_quant, nn.Identity)
default_embedding_qat_qconfig = QConfig(
    NoopObserver.with_args(dtype=dtypes.float32), fake_quantize.default_embedding_fake_quant
)

_OF_QNNPACK: dict[str, Any] = {"dtype": qint8, "reduce_range": False, "eps": 2.0**-12}
_TRAINED = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, quant_min=-128, quant_max=127, **_OF_QNNPACK
)
default_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_OF_QNNPACK), weight_observer_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qconfig = QConfig(
    HistogramObserver.with_args(**_OF_QNNPACK), per_channel_weight_observer_range_neg_127_to_127
)
default_symmetric_qnnpack_qat_qconfig = QConfig(
    _TRAINED, fake_quantize.fused_wt_fake_quant_range_neg_127_to_127
)
default_per_channel_symmetric_qnnpack_qat_qconfig = QConfig(
    _TRAINED, fake_quantize.fused_per_channel_wt_fake_quant_range_neg_127_to_127
)

_REDUCED = {"x86": True, "fbgemm": True, "qnnpack": False, "onednn": False}
"""Engines -> whether results have 7 bits, which sums of 16 bits need."""


def _need_engine(backend: str) -> None:
    if backend not in _REDUCED:
        raise AssertionError(
            f"backend: {backend} not supported. backend must be one of {list(_REDUCED)}"
            f"{at_user_line()}"
        )


def get_default_qconfig(backend: str = "x86", version: int = 0) -> QConfig:
    """The QConfig for static quantization with one of PyTorch's engines."""
    _need_engine(backend)
    weight = (
        default_weight_observer if backend == "qnnpack" else default_per_channel_weight_observer
    )
    return QConfig(HistogramObserver.with_args(reduce_range=_REDUCED[backend]), weight)


def get_default_qat_qconfig(backend: str = "x86", version: int | None = 1) -> QConfig:
    """The QConfig for training with rounded numbers. version: 1 has the fused module."""
    _need_engine(backend)
    whole = backend == "qnnpack"
    if version:
        made: Any = FusedMovingAvgObsFakeQuantize
        weight = (
            fake_quantize.default_fused_wt_fake_quant
            if whole
            else fake_quantize.default_fused_per_channel_wt_fake_quant
        )
    else:
        made = FakeQuantize
        weight = (
            fake_quantize.default_weight_fake_quant
            if whole
            else fake_quantize.default_per_channel_weight_fake_quant
        )
    activation = made.with_args(
        observer=MovingAverageMinMaxObserver, quant_min=0, quant_max=255,
        reduce_range=_REDUCED[backend],
    )  # fmt: skip
    return QConfig(activation, weight)


def qconfig_equals(q1: Any, q2: Any) -> bool:
    """Whether two qconfigs make the same observers with the same options."""
    if q1 is None or q2 is None:
        return q1 is q2

    def told(made: Any) -> Any:
        if not isinstance(made, Maker):
            return made
        return made.made, {name: told(value) for name, value in made.options.items()}

    return all(told(a) == told(b) for a, b in zip(q1, q2, strict=True))
