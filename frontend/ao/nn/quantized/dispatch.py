"""Functions of torch on quantized tensors, as `torch.relu(q)`: of the integers where these are
enough, else of the numbers, rounded to the scale of the input or to one of the function's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....functions.quantized import MOVES, QuantizedTensor, moving, quantize_per_tensor
from . import functional, picking
from .functional import of_numbers
from .products import dense


def relu(input: QuantizedTensor, inplace: bool = False) -> QuantizedTensor:
    codes = input._codes
    zero = input.q_zero_point()
    if not inplace:
        return input._with(codes.clamp(min=zero))
    codes.clamp_(min=zero)
    return input


def cat(tensors: Sequence[QuantizedTensor], dim: int = 0) -> QuantizedTensor:
    """The numbers of the tensors, at the scale of the first."""
    first = tensors[0]
    made = dense_cat([t.dequantize() for t in tensors], dim)
    found: QuantizedTensor = quantize_per_tensor(
        made, first.q_scale(), first.q_zero_point(), first.dtype
    )
    return found


def stack(tensors: Sequence[QuantizedTensor], dim: int = 0) -> QuantizedTensor:
    """The numbers of the tensors along a new dimension, at the scale of the first."""
    return cat([t.unsqueeze(dim) for t in tensors], dim)


def dense_cat(tensors: Sequence[Any], dim: int) -> Any:
    from ....functions.joining import cat as joined

    return joined(list(tensors), dim)


def _at_scale(name: str, steps: int, middle: int) -> Callable[[QuantizedTensor], QuantizedTensor]:
    """A function whose values have a range of their own, which `steps` steps divide by one."""

    def call(input: QuantizedTensor) -> QuantizedTensor:
        zero = middle - (128 if input.dtype.is_signed else 0)
        return of_numbers(input, dense(name), scale=1 / steps, zero_point=zero)

    return call


def _of_numbers(name: str) -> Callable[..., QuantizedTensor]:
    def call(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
        options.pop("inplace", None)
        return of_numbers(input, dense(name), *args, **options)

    return call


def mean(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
    return of_numbers(input, lambda x: x.mean(*args, **options))


def std(input: QuantizedTensor, *args: Any, **options: Any) -> QuantizedTensor:
    return of_numbers(input, lambda x: x.std(*args, **options))


def clamp(input: QuantizedTensor, min: Any = None, max: Any = None) -> QuantizedTensor:
    return of_numbers(input, lambda x: x.clamp(min, max))


def dropout(
    input: QuantizedTensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Any:
    if training and p:
        raise RuntimeError("dropout of a quantized tensor: call eval() first")
    return input


BY_NAME: dict[str, Callable[..., Any]] = {
    "relu": relu,
    "relu_": lambda input: relu(input, True),
    "relu6": _of_numbers("relu6"),
    "hardtanh": _of_numbers("hardtanh"),
    "leaky_relu": _of_numbers("leaky_relu"),
    "threshold": _of_numbers("threshold"),
    "gelu": _of_numbers("gelu"),
    "sigmoid": _at_scale("sigmoid", 256, 0),
    "tanh": _at_scale("tanh", 128, 128),
    "hardsigmoid": functional.hardsigmoid,
    "max_pool1d": functional.max_pool1d,
    "max_pool2d": functional.max_pool2d,
    "avg_pool2d": functional.avg_pool2d,
    "avg_pool3d": functional.avg_pool3d,
    "adaptive_avg_pool2d": functional.adaptive_avg_pool2d,
    "adaptive_avg_pool3d": functional.adaptive_avg_pool3d,
    "interpolate": functional.interpolate,
    "mean": mean,
    "std": std,
    "clamp": clamp,
    "cat": cat,
    "stack": stack,
    "hstack": lambda tensors: cat(tensors, min(tensors[0].dim() - 1, 1)),
    "vstack": lambda tensors: cat([t if t.dim() > 1 else t.unsqueeze(0) for t in tensors]),
    "dropout": dropout,
    **{name: moving(name) for name in MOVES},
    **picking.BY_NAME,
}
"""The functions and methods of torch that take quantized tensors, by name."""
