"""Elementwise operators. ONNX's broadcast as NumPy does, like ours."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...recording import Handle
from .api import f
from .table import operator
from .values import Host


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    def compute(a: Any, b: Any, *, broadcast: int = 0, axis: int | None = None) -> Any:
        return function(a, b if axis is None else _placed(b, a.dim(), axis))

    return compute


def _placed(b: Any, rank: int, axis: int) -> Any:
    """b with ones behind it: its first dimension is `axis`. Before opset 7 nodes said so."""
    return b.reshape([*b.shape] + [1] * (rank - axis % rank - b.dim()))


for _name, _function in {
    "Abs": f.abs, "Acos": f.acos, "Acosh": f.acosh, "Asin": f.asin, "Asinh": f.asinh,
    "Atan": f.atan, "Atanh": f.atanh, "BitwiseNot": f.bitwise_not, "Ceil": f.ceil, "Cos": f.cos,
    "Cosh": f.cosh, "Erf": f.erf, "Exp": f.exp, "Floor": f.floor, "IsNaN": f.isnan, "Log": f.log,
    "Neg": f.neg, "Not": f.logical_not, "Reciprocal": f.reciprocal, "Round": f.round,
    "Sign": f.sign, "Sin": f.sin, "Sinh": f.sinh, "Sqrt": f.sqrt, "Tan": f.tan, "Tanh": f.tanh,
}.items():  # fmt: skip
    operator(_name)(_unary(_function))

for _name, _function in {
    "Add": f.add, "And": f.logical_and, "BitwiseAnd": f.bitwise_and, "BitwiseOr": f.bitwise_or,
    "BitwiseXor": f.bitwise_xor, "Equal": f.eq, "Greater": f.gt, "GreaterOrEqual": f.ge,
    "Less": f.lt, "LessOrEqual": f.le, "Mul": f.mul, "Or": f.logical_or, "Sub": f.sub,
    "Xor": f.logical_xor,
    "Div": lambda a, b: f.div(a, b, rounding_mode=None if a.dtype.is_floating_point else "trunc"),
}.items():  # fmt: skip
    operator(_name)(_binary(_function))


@operator("Mod")
def mod(a: Any, b: Any, *, fmod: int = 0) -> Any:
    return f.fmod(a, b) if fmod else f.remainder(a, b)


@operator("Pow")
def pow_(base: Any, exponent: Any) -> Any:
    return f.pow(base, exponent).to(base.dtype)


@operator("Max")
def max_(*tensors: Any) -> Any:
    return functools.reduce(f.maximum, tensors)


@operator("Min")
def min_(*tensors: Any) -> Any:
    return functools.reduce(f.minimum, tensors)


@operator("Sum")
def sum_(*tensors: Any) -> Any:
    return functools.reduce(f.add, tensors)


@operator("Mean")
def mean(*tensors: Any) -> Any:
    return sum_(*tensors) / len(tensors)


@operator("Where")
def where(condition: Any, a: Any, b: Any) -> Any:
    return f.where(condition, a, b)


@operator("BitShift")
def bit_shift(x: Any, by: Any, *, direction: str) -> Any:
    return f.bitwise_left_shift(x, by) if direction == "LEFT" else f.bitwise_right_shift(x, by)


@operator("IsInf")
def is_inf(x: Any, *, detect_negative: int = 1, detect_positive: int = 1) -> Any:
    negative, positive = f.isneginf(x), f.isposinf(x)
    if detect_negative and detect_positive:
        return f.isinf(x)
    return negative if detect_negative else positive if detect_positive else negative & positive


@operator("Clip", either=("min", "max"))
def clip(x: Any, min: Any = None, max: Any = None) -> Any:
    """Clip. Before opset 11 the bounds were attributes."""
    if isinstance(min, Handle):
        x, min = f.maximum(x, min), None
    if isinstance(max, Handle):
        x, max = f.minimum(x, max), None
    bounds = [b.array.item() if isinstance(b, Host) else b for b in (min, max)]
    return x if bounds == [None, None] else f.clamp(x, *bounds)
