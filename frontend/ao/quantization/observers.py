"""Observers: they see tensors go by, and give the scale and the zero point that cover them."""

from __future__ import annotations

import abc
import warnings
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


class Maker:
    """A class with options for it, which makes objects when it is called."""

    def __init__(self, made: Any, options: dict[str, Any]):
        self.made, self.options = made, options

    def __call__(self, **options: Any) -> Any:
        return self.made(**{**self.options, **options})

    def with_args(self, **options: Any) -> Maker:
        return Maker(self.made, {**self.options, **options})

    def __repr__(self) -> str:
        said = "".join(f", {name}={value!r}" for name, value in self.options.items())
        return f"functools.partial({self.made!r}{said}){{}}"


class _Made:
    @classmethod
    def with_args(cls, **options: Any) -> Any:
        """What makes objects of this class with these options."""
        return Maker(cls, options)


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


def qparams(observer: Any, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """(scale, zero point) with which an observer's integers cover [low, high] and 0."""
    low, high = low.clamp(max=0), high.clamp(min=0)
    least, most = observer.quant_min, observer.quant_max
    steps = most - least
    eps = float(observer.eps)
    if observer.qscheme in (per_tensor_symmetric, per_channel_symmetric):
        scale = (high.maximum(-low) / (steps / 2)).clamp(min=eps)
        middle = 0 if observer.dtype.is_signed else 128
        if not observer.dtype.is_signed and observer.has_customized_qrange:
            middle = (least + most) // 2
        zero = full_like(zeros_like(scale, dtype=dtypes.int32), middle)
    else:
        scale = ((high - low) / float(steps)).clamp(min=eps)
        zero = (least - (low / scale).round().to(dtypes.int32)).clamp(least, most)
    if not scale.dim():
        scale, zero = scale.view(1), zero.view(1)
    return scale, zero


class Observer(ObserverBase):
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
        factory_kwargs: Any = None,
        eps: float = 2.0**-23,
        is_dynamic: bool = False,
        **options: Any,
    ):
        super().__init__(dtype, is_dynamic, **options)
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        low, high = dtype.range
        low = low if quant_min is None else quant_min
        high = high if quant_max is None else quant_max
        if reduce_range:
            low, high = low // 2, high // 2
        self.reduce_range, self.quant_min, self.quant_max = reduce_range, low, high
        self.qscheme = qscheme
        self.register_buffer("eps", tensor([eps]))
        self.register_buffer("min_val", tensor(float("inf")))
        self.register_buffer("max_val", tensor(float("-inf")))

    def _see(self, low: Tensor, high: Tensor) -> None:
        seen = self.min_val.shape == low.shape
        self.min_val = self.min_val.minimum(low) if seen else low
        self.max_val = self.max_val.maximum(high) if seen else high

    def _limits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The least and the largest number of a tensor."""
        return x.min(), x.max()

    def reset_min_max_vals(self) -> None:
        """Forget what was seen."""
        self.min_val, self.max_val = tensor(float("inf")), tensor(float("-inf"))

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        """(scale, zero point, int32) that cover what was seen, and 0."""
        if not self.min_val.numel() or not (self.min_val <= self.max_val).all():
            return self._unseen()
        return qparams(self, self.min_val, self.max_val)

    def _unseen(self) -> tuple[Tensor, Tensor]:
        warnings.warn(
            "must run observer before calling calculate_qparams. Returning default values.",
            stacklevel=3,
        )
        return tensor([1.0]), tensor([0])

    def extra_repr(self) -> str:
        texts = [
            str(x.item()) if not x.dim() else repr(x).replace("\n", "\n  ")
            for x in (self.min_val, self.max_val)
        ]
        return f"min_val={texts[0]}, max_val={texts[1]}"

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        for name in ("min_val", "max_val"):  # their sizes follow from what was seen
            found = state_dict.get(prefix + name)
            if found is not None and found.shape != getattr(self, name).shape:
                setattr(self, name, zeros_like(found))
        super()._load_from_state_dict(state_dict, prefix, *rest)


class MinMaxObserver(Observer):
    """The least and the largest of all numbers."""

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            self._see(*self._limits(x_orig.detach().to(dtypes.float32)))
        return x_orig


class MovingAverageMinMaxObserver(Observer):
    """Averages of the least and the largest numbers, in which the last ones count most."""

    def __init__(self, averaging_constant: float = 0.01, **options: Any):
        super().__init__(**options)
        self.averaging_constant = averaging_constant

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            low, high = self._limits(x_orig.detach().to(dtypes.float32))
            if not self.min_val.numel() or self.min_val.isinf().any():
                self.min_val, self.max_val = low, high
            else:
                self.min_val = self.min_val + self.averaging_constant * (low - self.min_val)
                self.max_val = self.max_val + self.averaging_constant * (high - self.max_val)
        return x_orig


class _OfChannels(Observer):
    """An observer of each place along `ch_axis`."""

    def __init__(self, ch_axis: int = 0, qscheme: qscheme = per_channel_affine, **options: Any):
        super().__init__(qscheme=qscheme, **options)
        self.ch_axis = ch_axis
        self.reset_min_max_vals()

    def reset_min_max_vals(self) -> None:
        self.min_val, self.max_val = tensor([]), tensor([])

    def _limits(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = x.movedim(self.ch_axis, 0).flatten(1)
        return rows.amin(1), rows.amax(1)


class PerChannelMinMaxObserver(_OfChannels, MinMaxObserver):
    """The least and the largest numbers of each place along `ch_axis`."""


class MovingAveragePerChannelMinMaxObserver(_OfChannels, MovingAverageMinMaxObserver):
    """Averages of them, in which the last ones count most."""


class NoopObserver(ObserverBase):
    """Sees nothing, and gives no scale."""

    def __init__(self, dtype: Any = dtypes.float16, custom_op_name: str = ""):
        super().__init__(dtype)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **options: Any) -> Any:
        raise RuntimeError(
            f"calculate_qparams should not be called for NoopObserver{at_user_line()}"
        )


class PlaceholderObserver(NoopObserver):
    """Holds a place for a scale that is found when values are there."""


class RecordingObserver(NoopObserver):
    """Keeps the tensors that it sees."""

    def __init__(self, dtype: Any = quint8):
        super().__init__(dtype)
        self.tensor_val: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        self.tensor_val.append(x.clone())
        return x

    def get_tensor_value(self) -> list[Tensor]:
        return self.tensor_val
