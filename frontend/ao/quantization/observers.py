"""Observers: they see tensors go by, and give the scale and the zero point that cover them."""

from __future__ import annotations

import abc
import functools
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.creation import full_like, tensor, zeros_like
from ...functions.quantized import (
    QuantizedDType,
    per_channel_affine,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qscheme,
    quint8,
)

if TYPE_CHECKING:
    from ..._tensor import Tensor


class _Made:
    @classmethod
    def with_args(cls, **options: Any) -> Any:
        """What makes objects of this class with these options."""
        return functools.partial(cls, **options)


class ObserverBase(_Made, abc.ABC, nn.Module):
    """A module that sees tensors go by: `forward` takes them, `calculate_qparams` gives the scale
    and the zero point."""

    def __init__(self, dtype: QuantizedDType, is_dynamic: bool = False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def calculate_qparams(self, **options: Any) -> Any: ...


class FakeQuantizeBase(_Made, abc.ABC, nn.Module):
    """A module that rounds tensors as a quantized one would. Buffers say whether it does, and
    whether it observes: `fake_quant_enabled` and `observer_enabled`, each (1,) of uint8."""

    fake_quant_enabled: Tensor
    observer_enabled: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("fake_quant_enabled", tensor([1], dtype=dtypes.uint8))
        self.register_buffer("observer_enabled", tensor([1], dtype=dtypes.uint8))

    @abc.abstractmethod
    def forward(self, x: Tensor) -> Tensor: ...

    @abc.abstractmethod
    def calculate_qparams(self, **options: Any) -> Any: ...

    def enable_fake_quant(self, enabled: bool = True) -> None:
        self.fake_quant_enabled[0] = int(enabled)

    def disable_fake_quant(self) -> None:
        self.enable_fake_quant(False)

    def enable_observer(self, enabled: bool = True) -> None:
        self.observer_enabled[0] = int(enabled)

    def disable_observer(self) -> None:
        self.enable_observer(False)


class _Observer(ObserverBase):
    """The least and the largest numbers so far: `min_val` and `max_val`."""

    min_val: Tensor
    max_val: Tensor

    def __init__(
        self,
        dtype: QuantizedDType = quint8,
        qscheme: qscheme = per_tensor_affine,
        reduce_range: bool = False,
        quant_min: int | None = None,
        quant_max: int | None = None,
        eps: float = 2.0**-23,
    ):
        super().__init__(dtype)
        low, high = dtype.range
        if reduce_range:
            low, high = low // 2, (high - 1) // 2
        self.quant_min = low if quant_min is None else quant_min
        self.quant_max = high if quant_max is None else quant_max
        self.qscheme, self.eps = qscheme, eps
        self.register_buffer("min_val", tensor(float("inf")))
        self.register_buffer("max_val", tensor(float("-inf")))

    def _see(self, low: Tensor, high: Tensor) -> None:
        seen = self.min_val.shape == low.shape
        self.min_val = self.min_val.minimum(low) if seen else low
        self.max_val = self.max_val.maximum(high) if seen else high

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """(scale, zero point, int32) that cover what was seen, and 0."""
        if not (self.min_val <= self.max_val).all():
            raise RuntimeError(
                f"{self._get_name()}: expected to see numbers first, by calls{at_user_line()}"
            )
        low, high = self.min_val.clamp(max=0), self.max_val.clamp(min=0)
        steps = self.quant_max - self.quant_min
        if self.qscheme in (per_tensor_symmetric, per_channel_symmetric):
            scale = (high.maximum(-low) / (steps / 2)).clamp(min=self.eps)
            middle = 0 if self.dtype.is_signed else (self.quant_min + self.quant_max + 1) // 2
            return scale, full_like(zeros_like(scale, dtype=dtypes.int32), middle)
        scale = ((high - low) / steps).clamp(min=self.eps)
        zero = (self.quant_min - (low / scale).round()).clamp(self.quant_min, self.quant_max)
        return scale, zero.to(dtypes.int32)


class MinMaxObserver(_Observer):
    """The least and the largest of all numbers."""

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(dtypes.float32)
            self._see(x.min(), x.max())
        return x_orig


class MovingAverageMinMaxObserver(_Observer):
    """Averages of the least and the largest numbers, in which the last ones count most."""

    def __init__(self, averaging_constant: float = 0.01, **options: Any):
        super().__init__(**options)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(dtypes.float32)
            low, high = x.min(), x.max()
            if self.min_val.isinf():
                self.min_val, self.max_val = low, high
            else:
                self.min_val = self.min_val + self.averaging_constant * (low - self.min_val)
                self.max_val = self.max_val + self.averaging_constant * (high - self.max_val)
        return x_orig


class PerChannelMinMaxObserver(_Observer):
    """The least and the largest numbers of each place along `ch_axis`."""

    def __init__(self, ch_axis: int = 0, qscheme: qscheme = per_channel_affine, **options: Any):
        super().__init__(qscheme=qscheme, **options)
        self.ch_axis = ch_axis

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            x = x_orig.detach().to(dtypes.float32).movedim(self.ch_axis, 0).flatten(1)
            self._see(x.amin(1), x.amax(1))
        return x_orig
