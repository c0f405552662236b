"""Sums and products of quantized tensors, as modules that know the scale of their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....functions.from_data import tensor
from ....functions.quantized import QuantizedTensor, quantize_per_tensor
from ....nn import Identity, Module
from . import dispatch


def rounded(made: Any, scale: float, zero_point: int, like: QuantizedTensor) -> QuantizedTensor:
    found: QuantizedTensor = quantize_per_tensor(made, scale, zero_point, like.dtype)
    return found


def add_scalar(x: QuantizedTensor, y: float) -> QuantizedTensor:
    """x + y: the same integers around another zero point, if there is one."""
    low, high = x.dtype.range
    scale = x.q_scale()
    zero = x.q_zero_point() - round(y / scale)
    if low <= zero <= high:
        return QuantizedTensor(x._codes.clone(), scale, zero, x.dtype)
    reach = (high - zero if zero < low else zero - low) / (high - low)
    return rounded(x.dequantize() + y, scale * reach, low if zero < low else high, x)


def mul_scalar(x: QuantizedTensor, y: float) -> QuantizedTensor:
    """x * y: the same integers at another scale, mirrored if y is negative."""
    low, high = x.dtype.range
    if y > 0:
        return QuantizedTensor(x._codes.clone(), x.q_scale() * y, x.q_zero_point(), x.dtype)
    if y == 0:
        return QuantizedTensor(x._codes * 0, 1.0, 0, x.dtype)
    mirrored = low + high - x._codes.int()
    zero = low + high - x.q_zero_point()
    return QuantizedTensor(mirrored.to(x.dtype.stored), x.q_scale() * -y, zero, x.dtype)


def add(x: QuantizedTensor, y: QuantizedTensor, scale: float, zero_point: int) -> QuantizedTensor:
    """x + y, at a scale."""
    return rounded(x.dequantize() + y.dequantize(), scale, zero_point, x)


def mul(x: QuantizedTensor, y: QuantizedTensor, scale: float, zero_point: int) -> QuantizedTensor:
    """x * y, at a scale: products of the integers."""
    products = (x._codes.int() - x.q_zero_point()) * (y._codes.int() - y.q_zero_point())
    step = np.float32(x.q_scale()) * np.float32(y.q_scale()) * (1 / np.float32(scale))
    codes = (products.float() * float(step)).round() + zero_point
    codes = codes.clamp(*x.dtype.range).to(x.dtype.stored)
    return QuantizedTensor(codes, scale, zero_point, x.dtype)


def matmul(
    x: QuantizedTensor, y: QuantizedTensor, scale: float, zero_point: int
) -> QuantizedTensor:
    """x @ y, at a scale."""
    return rounded(x.dequantize() @ y.dequantize(), scale, zero_point, x)


def cat(x: Sequence[QuantizedTensor], dim: int, scale: float, zero_point: int) -> QuantizedTensor:
    """The numbers of tensors one behind the other, at a scale."""
    return rounded(dispatch.dense_cat([t.dequantize() for t in x], dim), scale, zero_point, x[0])


class QFunctional(Module):
    """The operations of `FloatFunctional` on quantized tensors, with results at a scale."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.zero_point = 1.0, 0
        self.activation_post_process = Identity()

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scale"] = tensor(float(self.scale))
        destination[prefix + "zero_point"] = tensor(int(self.zero_point))

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        self.scale = float(state_dict.pop(prefix + "scale"))
        self.zero_point = int(state_dict.pop(prefix + "zero_point"))
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def _get_name(self) -> str:
        return "QFunctional"

    def extra_repr(self) -> str:
        return f"scale={self.scale}, zero_point={self.zero_point}"

    def forward(self, x: Any) -> Any:
        raise RuntimeError(
            "Functional is not intended to use the forward. Please use the corresponding operation"
        )

    def _at(self) -> tuple[float, int]:
        return float(self.scale), int(self.zero_point)

    def add(self, x: QuantizedTensor, y: QuantizedTensor) -> QuantizedTensor:
        return add(x, y, *self._at())

    def add_relu(self, x: QuantizedTensor, y: QuantizedTensor) -> QuantizedTensor:
        return dispatch.relu(self.add(x, y))

    def add_scalar(self, x: QuantizedTensor, y: float) -> QuantizedTensor:
        return add_scalar(x, y)

    def mul(self, x: QuantizedTensor, y: QuantizedTensor) -> QuantizedTensor:
        return mul(x, y, *self._at())

    def mul_scalar(self, x: QuantizedTensor, y: float) -> QuantizedTensor:
        return mul_scalar(x, y)

    def matmul(self, x: QuantizedTensor, y: QuantizedTensor) -> QuantizedTensor:
        return matmul(x, y, *self._at())

    def cat(self, x: Sequence[QuantizedTensor], dim: int = 0) -> QuantizedTensor:
        return cat(x, dim, *self._at())

    @classmethod
    def from_float(cls, mod: Any, use_precomputed_fake_quant: bool = False) -> QFunctional:
        scale, zero = mod.activation_post_process.calculate_qparams()
        made = cls()
        made.scale, made.zero_point = float(scale), int(zero)
        return made


class Sum(QFunctional):
    """The sum of two quantized tensors, at a scale."""

    def __init__(self, scale: float, zero_point: int) -> None:
        super().__init__()
        self.scale, self.zero_point = scale, zero_point

    def forward(self, x: QuantizedTensor, y: QuantizedTensor) -> QuantizedTensor:  # type: ignore[override]
        return self.add(x, y)
