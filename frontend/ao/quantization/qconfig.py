"""QConfigs: how results and weights are observed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ...functions.quantized import per_channel_symmetric, per_tensor_symmetric, qint8
from . import fake_quantize
from .fake_quantize import FakeQuantize, FusedMovingAvgObsFakeQuantize
from .histograms import HistogramObserver
from .observers import MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver


class QConfig(NamedTuple):
    """How values and weights are observed: classes that make observers, or a dtype for weights."""

    activation: Any
    weight: Any


default_dynamic_qconfig = QConfig(None, qint8)
per_channel_dynamic_qconfig = QConfig(None, qint8)
"""The same: each row of a weight has a scale of its own in both."""
float16_dynamic_qconfig = QConfig(None, dtypes.float16)

default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_histogram_observer = HistogramObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric
)
default_qconfig = QConfig(default_observer, default_weight_observer)
default_per_channel_qconfig = QConfig(default_observer, default_per_channel_weight_observer)
default_qat_qconfig = QConfig(
    fake_quantize.default_fake_quant, fake_quantize.default_weight_fake_quant
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
