"""Observers: they see tensors go by, and give the scale and the zero point that cover them."""

from __future__ import annotations

import abc
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.creation import full_like, zeros_like
from ...functions.from_data import tensor
from ...functions.quantized import (
    QuantizedDType,
    per_channel_affine,
    per_channel_affine_float_qparams,
    per_channel_symmetric,
    per_tensor_affine,
    per_tensor_symmetric,
    qint8,
    qscheme,
    quint4x2,
    quint8,
)

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

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

    def __init__(self, dtype: QuantizedDType | DType, is_dynamic: bool = False):
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
    """(scale, zero point) with which an observer's integers cover [low, high] and 0; without 0, if
    zero points are floats."""
    if observer.qscheme is per_channel_affine_float_qparams:
        scale = (high - low) / float(observer.quant_max - observer.quant_min)
        scale = scale.where(scale > float(observer.eps), full_like(scale, 1))
        return scale, -low / scale
    low, high = low.clamp(max=0), high.clamp(min=0)
    least, most = observer.quant_min, observer.quant_max
    steps = most - least
    eps = float(observer.eps)
    if observer.qscheme in (per_tensor_symmetric, per_channel_symmetric):
        scale = (high.maximum(-low) / (steps / 2)).clamp(min=eps)
        zero = full_like(zeros_like(scale, dtype=dtypes.int64), _middle(observer))
    else:
        scale = ((high - low) / float(steps)).clamp(min=eps)
        zero = (least - (low / scale).round().to(dtypes.int32)).clamp(least, most)
    if not scale.dim():
        scale, zero = scale.view(1), zero.view(1)
    return scale, zero


def _middle(observer: Any) -> int:
    """The integer that stands for 0 where numbers lie around it."""
    if observer.dtype is dtypes.uint16:
        return 2**15
    if observer.dtype not in (quint8, dtypes.uint8):
        return 0
    ends = observer.quant_min + observer.quant_max
    return int(ends // 2) if observer.has_customized_qrange else 128


_OF_A_BYTE = qint8, quint8, dtypes.int8, dtypes.uint8
"""The types of which `reduce_range` leaves out a bit."""


def _range(dtype: QuantizedDType | DType) -> tuple[int, int]:
    """The least and the largest integer of a type."""
    if isinstance(dtype, QuantizedDType):
        return dtype.range
    if dtype not in (*_OF_A_BYTE, dtypes.int16, dtypes.uint16, dtypes.int32):
        raise AssertionError(
            f"expected a type of quantized numbers or of integers up to 32 bits, got {dtype}"
            f"{at_user_line()}"
        )
    limits = np.iinfo(dtype.np)
    return int(limits.min), int(limits.max)


class Observer(ObserverBase):
    """The least and the largest numbers so far: `min_val` and `max_val`."""

    min_val: Tensor
    max_val: Tensor
    _reduces_symmetric = False

    def __init__(
        self,
        dtype: QuantizedDType | DType = quint8,
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
        low, high = _range(dtype)
        low = low if quant_min is None else quant_min
        high = high if quant_max is None else quant_max
        around_0 = qscheme in (per_tensor_symmetric, per_channel_symmetric)
        if reduce_range and dtype is quint8 and around_0 and not self._reduces_symmetric:
            raise NotImplementedError(
                f"Cannot reduce range for symmetric quantization for quint8{at_user_line()}"
            )
        if reduce_range and dtype in _OF_A_BYTE:
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


class PlaceholderObserver(ObserverBase):
    """Holds a place for a scale that is found when values are there."""

    def __init__(
        self,
        dtype: Any = dtypes.float32,
        custom_op_name: str = "",
        compute_dtype: Any = None,
        quant_min: int | None = None,
        quant_max: int | None = None,
        qscheme: Any = None,
        eps: float | None = None,
        is_dynamic: bool = False,
    ):
        super().__init__(dtype, is_dynamic)
        self.qscheme = per_tensor_affine if qscheme is None else qscheme
        self.quant_min, self.quant_max = quant_min, quant_max
        self.eps, self.custom_op = eps, custom_op_name

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **options: Any) -> Any:
        raise Exception(
            f"calculate_qparams should not be called for PlaceholderObserver{at_user_line()}"
        )

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"


class FixedQParamsObserver(ObserverBase):
    """Gives the scale and the zero point that it was made with."""

    scale: Tensor
    zero_point: Tensor

    def __init__(
        self,
        scale: float,
        zero_point: int,
        dtype: QuantizedDType = quint8,
        qscheme: qscheme = per_tensor_affine,
        quant_min: int = 0,
        quant_max: int = 255,
        is_dynamic: bool = False,
        **options: Any,
    ):
        if is_dynamic:
            raise NotImplementedError("FixedQParamsObserver doesn't support dynamic quantization")
        super().__init__(dtype, is_dynamic)
        self.quant_min, self.quant_max, self.qscheme = quant_min, quant_max, qscheme
        self.register_buffer("scale", tensor([float(scale)]))
        self.register_buffer("zero_point", tensor([int(zero_point)], dtype=dtypes.int32))

    def forward(self, X: Tensor) -> Tensor:
        return X

    def calculate_qparams(self, **options: Any) -> tuple[Tensor, Tensor]:
        return self.scale, self.zero_point


class ReuseInputObserver(ObserverBase):
    """Says that a result has the scale of the input."""

    def __init__(self) -> None:
        super().__init__(quint8)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def calculate_qparams(self, **options: Any) -> Any:
        raise Exception(
            f"calculate_qparams should not be called for ReuseInputObserver{at_user_line()}"
        )


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


_EPS = 2.0**-12
"""The least scale of weights for QNNPACK's kernels."""
default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric
)
weight_observer_range_neg_127_to_127 = MinMaxObserver.with_args(
    dtype=qint8, qscheme=per_tensor_symmetric, quant_min=-127, quant_max=127, eps=_EPS
)
per_channel_weight_observer_range_neg_127_to_127 = PerChannelMinMaxObserver.with_args(
    dtype=qint8, qscheme=per_channel_symmetric, quant_min=-127, quant_max=127, eps=_EPS
)
default_dynamic_quant_observer = PlaceholderObserver.with_args(
    dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True
)
default_float_qparams_observer = PerChannelMinMaxObserver.with_args(
    dtype=quint8, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_float_qparams_observer_4bit = PerChannelMinMaxObserver.with_args(
    dtype=quint4x2, qscheme=per_channel_affine_float_qparams, ch_axis=0
)
default_placeholder_observer, default_debug_observer = PlaceholderObserver, RecordingObserver
default_reuse_input_observer = ReuseInputObserver
default_fixed_qparams_range_0to1_observer = FixedQParamsObserver.with_args(
    scale=1 / 256, zero_point=0, dtype=quint8, quant_min=0, quant_max=255
)
default_fixed_qparams_range_neg1to1_observer = FixedQParamsObserver.with_args(
    scale=2 / 256, zero_point=128, dtype=quint8, quant_min=0, quant_max=255
)
default_affine_fixed_qparams_observer = default_fixed_qparams_range_0to1_observer
default_symmetric_fixed_qparams_observer = default_fixed_qparams_range_neg1to1_observer


def _observers(mod: Any, prefix: str) -> Any:
    """(the prefix of its entries, the observer) for each observer of a model."""
    for name, each in mod.named_modules():
        if isinstance(each, ObserverBase):
            yield f"{prefix}{name}.", each


def get_observer_state_dict(mod: Any) -> dict[str, Any]:
    """The entries of a model's state dict that are what observers saw."""
    found: dict[str, Any] = {}
    for prefix, each in _observers(mod, ""):
        found |= {prefix + name: value for name, value in each.state_dict().items()}
    return found


def load_observer_state_dict(mod: Any, obs_dict: Any) -> None:
    """Give a model's observers what those of another one saw."""
    missing: set[str] = set()
    left = set(obs_dict)
    for prefix, each in _observers(mod, ""):
        own = {k[len(prefix) :]: v for k, v in obs_dict.items() if k.startswith(prefix)}
        left -= {prefix + name for name in own}
        missing |= {prefix + name for name in each.load_state_dict(own, strict=False).missing_keys}
    for names, said in ((missing, "Missing keys for observer"), (left, "Unexpected keys")):
        if names:
            raise Exception(f"{said} {', '.join(sorted(names))} in state_dict")
