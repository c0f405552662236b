"""Derivatives and steps of optimizers, as ai.onnx.preview.training defines them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...autograd import grad
from ...functions import creation
from .api import f
from .table import TRAINING, operator

Update = Callable[..., tuple[Any, ...]]
"""(x, its gradient, its states) to their next values; the gradient has none."""


def _each(tensors: tuple[Any, ...], states: int, update: Update) -> Any:
    """Update all tensors. They come by kind: the tensors, their gradients, their states."""
    count = len(tensors) // (2 + states)
    parts = [tensors[i * count : (i + 1) * count] for i in range(2 + states)]
    found = [update(*each) for each in zip(*parts, strict=True)]
    return tuple(value for kind in zip(*found, strict=True) for value in kind)


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Any,
    count: Any,
    *tensors: Any,
    decay_factor: float = 0.0,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
) -> Any:
    step = rate / (1 + count * decay_factor)

    def update(x: Any, g: Any, h: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        h = h + g * g
        return x - step * g / (f.sqrt(h) + epsilon), h

    return _each(tensors, 1, update)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Any,
    count: Any,
    *tensors: Any,
    alpha: float = 0.9,
    beta: float = 0.999,
    epsilon: float = 1e-6,
    norm_coefficient: float = 0.0,
    norm_coefficient_post: float = 0.0,
) -> Any:
    turns = count.to(rate.dtype)
    corrected = rate * f.sqrt(1 - beta**turns) / (1 - alpha**turns)
    step = f.where(count > 0, corrected, rate)

    def update(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = x - step * v / (f.sqrt(h) + epsilon)
        return (1 - norm_coefficient_post) * x, v, h

    return _each(tensors, 2, update)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Any,
    count: Any,
    *tensors: Any,
    alpha: float,
    beta: float,
    mode: str,
    norm_coefficient: float,
) -> Any:
    share = f.where(count > 0, beta, 1.0).to(rate.dtype)

    def update(x: Any, g: Any, v: Any) -> tuple[Any, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + share * g
        return x - rate * (g + alpha * v if mode == "nesterov" else v), v

    return _each(tensors, 1, update)


@operator("Gradient", domain=TRAINING, named=("xs", "y"), variables=("xs",), known="never")
def gradient(*inputs: Any, xs: list[Any], y: Any, zs: Any = None) -> Any:
    """The derivatives of y, summed, by each of xs. The values are those of the graph: the node
    can't put others in their places."""
    if any(a is not b for a, b in zip(inputs, xs, strict=False)):
        raise NotImplementedError("Gradient at other values than those that xs names")
    found = grad(y, xs, creation.ones_like(y), create_graph=True, allow_unused=True)
    return tuple(creation.zeros_like(x) if g is None else g for g, x in zip(found, xs, strict=True))
