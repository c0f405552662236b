"""quantize_: a model's linear layers get weights of 8 or 4 bits, as torchao's configs say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tilewright.ir.location import at_user_line

from ... import nn
from ...types import DeviceLike
from .layers import Int4Linear, Int8DynamicLinear, Int8Linear
from .replacing import replace_layers


@dataclass(frozen=True)
class Int8WeightOnlyConfig:
    """Weights of int8 with a scale for each output: a quarter of float32's bytes."""

    def layer(self, linear: nn.Linear) -> nn.Module:
        return Int8Linear.from_float(linear)


@dataclass(frozen=True)
class Int8DynamicActivationInt8WeightConfig:
    """The same weights. Each row of the input is rounded to int8, too: products of integers."""

    def layer(self, linear: nn.Linear) -> nn.Module:
        return Int8DynamicLinear.from_float(linear)


@dataclass(frozen=True)
class Int4WeightOnlyConfig:
    """Weights of 4 bits with a scale and an offset for each `group_size` places of a row: about a
    seventh of float32's bytes."""

    group_size: int = 128

    def layer(self, linear: nn.Linear) -> nn.Module:
        return Int4Linear.from_float(linear, self.group_size)


Config = Int8WeightOnlyConfig | Int8DynamicActivationInt8WeightConfig | Int4WeightOnlyConfig
int8_weight_only = Int8WeightOnlyConfig
int8_dynamic_activation_int8_weight = Int8DynamicActivationInt8WeightConfig
int4_weight_only = Int4WeightOnlyConfig


def quantize_(
    model: nn.Module,
    config: Config,
    filter_fn: Callable[[nn.Module, str], bool] | None = None,
    device: DeviceLike | None = None,
) -> None:
    """Replaces linear layers of `model`, in place.

    filter_fn(layer, name): whether to replace one; by default each `nn.Linear`.
    device: where the model goes first.
    """
    if not isinstance(config, Config):
        raise TypeError(
            "quantize_: expected a config such as int8_weight_only(), got "
            f"{config!r}{at_user_line()}"
        )
    if device is not None:
        model.to(device)

    def wanted(layer: nn.Module, name: str) -> bool:
        if type(layer) is not nn.Linear:
            return False
        return filter_fn is None or filter_fn(layer, name)

    def make(layer: nn.Module, name: str) -> nn.Module:
        assert isinstance(layer, nn.Linear)
        try:
            return config.layer(layer)
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    replace_layers(model, wanted, make)
