"""Modules that round tensors as quantized ones would be, while a model is trained."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions.fake_quantized import (
    fake_quantize_per_channel_affine,
    fake_quantize_per_tensor_affine,
    fbgemm_parameters,
)
from ...functions.from_data import tensor
from ...functions.quantized import (
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    quint8,
)
from .histograms import HistogramObserver
from .observers import (
    _EPS,
    FakeQuantizeBase,
    MovingAverageMinMaxObserver,
    MovingAveragePerChannelMinMaxObserver,
    default_fixed_qparams_range_0to1_observer,
    default_fixed_qparams_range_neg1to1_observer,
)

_OF_CHANNELS = (per_channel_affine, per_channel_symmetric, per_channel_affine_float_qparams)


class FakeQuantize(FakeQuantizeBase):
    """Observes tensors, and rounds them to the scale that the observer gives. Gradients pass where
    numbers are in the range."""

    scale: Any
    zero_point: Any

    def __init__(
        self,
        observer: Any = MovingAverageMinMaxObserver,
        quant_min: int | None = None,
        quant_max: int | None = None,
        is_dynamic: bool = False,
        **observer_kwargs: Any,
    ):
        super().__init__()
        options = dict(observer_kwargs)
        if quant_min is not None and quant_max is not None:
            options |= {"quant_min": quant_min, "quant_max": quant_max}
        self.activation_post_process = observer(**options)
        made = self.activation_post_process
        self.quant_min, self.quant_max = made.quant_min, made.quant_max
        self.is_dynamic = is_dynamic
        self.register_buffer("scale", tensor([1.0]))
        self.register_buffer("zero_point", tensor([0], dtype=dtypes.int32))
        self.dtype, self.qscheme = made.dtype, made.qscheme
        self.ch_axis = getattr(made, "ch_axis", -1)
        self.is_per_channel = self.qscheme in _OF_CHANNELS

    def calculate_qparams(self, **options: Any) -> Any:
        return self.activation_post_process.calculate_qparams()

    def _measured(self) -> tuple[Any, Any]:
        """The scale and the zero point while the model is trained."""
        return self.calculate_qparams()  # type: ignore[no-any-return]

    def forward(self, X: Any) -> Any:
        if self.observer_enabled.item():
            self.activation_post_process(X.detach())
            self.scale, zero = self._measured()
            self.zero_point = zero.int() if zero.dtype is dtypes.int64 else zero
        if not self.fake_quant_enabled.item():
            return X
        limits = self.quant_min, self.quant_max
        if self.is_per_channel:
            return fake_quantize_per_channel_affine(
                X, self.scale, self.zero_point, self.ch_axis, *limits
            )
        return fake_quantize_per_tensor_affine(X, self.scale, self.zero_point, *limits)

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, dtype={self.dtype}, qscheme={self.qscheme}, "
            f"ch_axis={self.ch_axis}, scale={self.scale}, zero_point={self.zero_point}"
        )

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("scale", "zero_point"):  # one for each channel, once something was seen
            found = state_dict.get(prefix + name)
            if found is not None and found.shape != getattr(self, name).shape:
                setattr(self, name, found.clone())
        super()._load_from_state_dict(state_dict, prefix, *rest)


class FixedQParamsFakeQuantize(FakeQuantize):
    """Rounds tensors to a scale that doesn't change."""

    def __init__(self, observer: Any):
        super().__init__(observer)
        self.scale, self.zero_point = self.activation_post_process.calculate_qparams()
        if self.is_per_channel:
            raise AssertionError("Only per tensor quantization is supported")

    def calculate_qparams(self, **options: Any) -> Any:
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, qscheme={self.qscheme}"
        )


class FusedMovingAvgObsFakeQuantize(FakeQuantize):
    """The same with an observer of moving averages; its flags are integers.

    In training its scales are FBGEMM's: a symmetric one uses the least integer as well.
    """

    def __init__(self, observer: Any = MovingAverageMinMaxObserver, *args: Any, **options: Any):
        super().__init__(observer, *args, **options)
        self.fake_quant_enabled = tensor([1], dtype=dtypes.int64)
        self.observer_enabled = tensor([1], dtype=dtypes.int64)

    def _measured(self) -> tuple[Any, Any]:
        seen = self.activation_post_process
        low, high = (np.atleast_1d(x.numpy()) for x in (seen.min_val, seen.max_val))
        symmetric = self.qscheme in (per_tensor_symmetric, per_channel_symmetric)
        found = fbgemm_parameters(low, high, self.quant_min, self.quant_max, symmetric)
        scale, zero = (tensor(x, device=self.scale.device) for x in found)
        return scale, zero

    def extra_repr(self) -> str:
        return (
            f"fake_quant_enabled={self.fake_quant_enabled}, "
            f"observer_enabled={self.observer_enabled}, scale={self.scale}, "
            f"zero_point={self.zero_point}, dtype={self.dtype}, quant_min={self.quant_min}, "
            f"quant_max={self.quant_max}, qscheme={self.qscheme}, "
            f"reduce_range={self.activation_post_process.reduce_range}"
        )


_BYTES = {"quant_min": 0, "quant_max": 255}
_SIGNED = {"quant_min": -128, "quant_max": 127, "dtype": qint8}
_ROWS = {"observer": MovingAveragePerChannelMinMaxObserver, "qscheme": per_channel_symmetric}
_WHOLE = {"observer": MovingAverageMinMaxObserver, "qscheme": per_tensor_symmetric}
default_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_BYTES, dtype=quint8, qscheme=per_tensor_affine,
    reduce_range=True,
)  # fmt: skip
default_weight_fake_quant = FakeQuantize.with_args(**_WHOLE, **_SIGNED, reduce_range=False)
default_per_channel_weight_fake_quant = FakeQuantize.with_args(
    **_ROWS, **_SIGNED, reduce_range=False, ch_axis=0
)
default_fused_act_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_BYTES, dtype=quint8
)
default_fused_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(**_WHOLE, **_SIGNED)
default_fused_per_channel_wt_fake_quant = FusedMovingAvgObsFakeQuantize.with_args(
    **_ROWS, **_SIGNED
)
default_dynamic_fake_quant = FakeQuantize.with_args(
    observer=MovingAverageMinMaxObserver, **_BYTES, is_dynamic=True, dtype=quint8,
    averaging_constant=1,
)  # fmt: skip
default_histogram_fake_quant = FakeQuantize.with_args(
    observer=HistogramObserver, **_BYTES, dtype=quint8, qscheme=per_tensor_affine,
    reduce_range=True,
)  # fmt: skip
default_embedding_fake_quant = FakeQuantize.with_args(
    observer=MovingAveragePerChannelMinMaxObserver, qscheme=per_channel_affine_float_qparams,
    dtype=quint8, **_BYTES, ch_axis=0, averaging_constant=1,
)  # fmt: skip
default_fixed_qparams_range_0to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_0to1_observer
)
default_fixed_qparams_range_neg1to1_fake_quant = FixedQParamsFakeQuantize.with_args(
    observer=default_fixed_qparams_range_neg1to1_observer
)
default_affine_fixed_qparams_fake_quant = default_fixed_qparams_range_0to1_fake_quant
default_symmetric_fixed_qparams_fake_quant = default_fixed_qparams_range_neg1to1_fake_quant
_BALANCED = {"quant_min": -127, "quant_max": 127, "dtype": qint8, "eps": _EPS}
fused_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_WHOLE, **_BALANCED
)
fused_per_channel_wt_fake_quant_range_neg_127_to_127 = FusedMovingAvgObsFakeQuantize.with_args(
    **_ROWS, **_BALANCED
)


def _on(name: str) -> Any:
    def switch(mod: Any) -> None:
        if isinstance(mod, FakeQuantizeBase):
            getattr(mod, name)()

    switch.__name__ = name
    switch.__doc__ = f"For `model.apply`: {name} of the fake quantization in a model."
    return switch


enable_fake_quant, disable_fake_quant = _on("enable_fake_quant"), _on("disable_fake_quant")
enable_observer, disable_observer = _on("enable_observer"), _on("disable_observer")
