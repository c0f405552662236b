"""Linear layers with weights of 8 or 4 bits, for inference. They are differentiable in their input
unless that is rounded, too."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line

from ... import nn
from ...functions.creation import ones, zeros
from ...nn.functional.narrow import BLOCK, linear_by_rows, linear_int4, linear_int8
from ...recording import record
from .rounding import by_groups, by_rows

if TYPE_CHECKING:
    from ..._tensor import Tensor


class _NarrowLinear(nn.Module):
    """The common part: sizes and bias."""

    bias: Tensor | None

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.register_buffer("bias", zeros(out_features) if bias else None)

    def _take_bias(self, layer: nn.Linear) -> None:
        self.bias = None if layer.bias is None else layer.bias.detach().clone()
        self.train(layer.training)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class Int8Linear(_NarrowLinear):
    """x[..., in_features] @ weight^T + bias.

    Buffers: `weight`, int8, and the `scale` of each row of it."""

    def __init__(self, in_features: int, out_features: int, bias: bool = True):
        super().__init__(in_features, out_features, bias)
        self.register_buffer("weight", zeros(out_features, in_features, dtype=dtypes.int8))
        self.register_buffer("scale", ones(out_features))

    @classmethod
    def from_float(cls, layer: nn.Linear) -> Int8Linear:
        """The layer for the weights of a linear one."""
        made = cls(layer.in_features, layer.out_features, layer.bias is not None)
        made.weight, made.scale = by_rows(layer.weight)
        made._take_bias(layer)
        return made

    def dequantized(self) -> Tensor:
        """The weight as float32."""
        return self.weight.float() * self.scale.unsqueeze(1)

    def forward(self, input: Tensor) -> Tensor:
        return linear_int8(input, self.weight, self.scale, self.bias)


class Int8DynamicLinear(Int8Linear):
    """The same, with each row of the input rounded to 8 bits: a product of integers."""

    def forward(self, input: Tensor) -> Tensor:
        return linear_by_rows(input, self.weight, self.scale, self.bias)


class Int4Linear(_NarrowLinear):
    """x[..., in_features] @ weight^T + bias.

    Buffers: `weight`, two integers of 4 bits in a byte, in the layout of `ops.linear_int4`, and
    `scale` and `offset` of each group of `group_size` places of a row: w = q * scale + offset."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, group_size: int = 128
    ):
        super().__init__(in_features, out_features, bias)
        if group_size < BLOCK or group_size % BLOCK or in_features % group_size:
            raise ValueError(
                f"expected groups of a multiple of {BLOCK} places that divides in_features, got "
                f"group_size={group_size} and in_features={in_features}: another size, or a filter "
                f"that leaves the layer, helps{at_user_line()}"
            )
        self.group_size = group_size
        shape = out_features, in_features // BLOCK, BLOCK // 2
        self.register_buffer("weight", zeros(shape, dtype=dtypes.uint8))
        self.register_buffer("scale", ones(out_features, in_features // group_size))
        self.register_buffer("offset", zeros(out_features, in_features // group_size))

    @classmethod
    def from_float(cls, layer: nn.Linear, group_size: int = 128) -> Int4Linear:
        """The layer for the weights of a linear one."""
        made = cls(layer.in_features, layer.out_features, layer.bias is not None, group_size)
        made.weight, made.scale, made.offset = by_groups(layer.weight, group_size)
        made._take_bias(layer)
        return made

    def dequantized(self) -> Tensor:
        """The weight as float32."""
        return record(ops.dequantized_int4, self.weight, self.scale, self.offset)

    def forward(self, input: Tensor) -> Tensor:
        return linear_int4(input, self.weight, self.scale, self.offset, self.bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, group_size={self.group_size}"
