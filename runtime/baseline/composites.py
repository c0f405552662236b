"""Forms of whole composites of float32 and float64 that fold, in few calls of NumPy.

Other composites run as the primitives that they decompose into.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dtype import float32, float64
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Op

from .forms import Form, elementwise


def form_of(node: Node) -> Form | None:
    """The form of a composite; None if it is computed as its primitives."""
    make = _FORMS.get(node.op)
    if make is None or node.dtype not in (float32, float64) or 0 in node.operands[0].shape:
        return None
    if any(o.dtype is not node.dtype for o in node.operands):
        return None
    return make(node)


def _linear(node: Node) -> Form:
    shape = tuple(node.shape)
    if len(shape) == 2 and len(node.operands) == 3:

        def matrix(x: Any, weight: Any, bias: Any) -> Any:
            out = x @ weight.T
            out += bias
            return out

        return matrix
    rows = (math.prod(shape[:-1]), node.operands[0].shape[-1])

    def linear(x: Any, weight: Any, *bias: Any) -> Any:
        out = x.reshape(rows) @ weight.T
        if bias:
            out += bias[0]
        return out.reshape(shape)

    return linear


def _exp(node: Node) -> Form:
    return elementwise(REGISTRY["exp"], (node.dtype,), node.dtype)


def _log(node: Node) -> Form:
    return elementwise(REGISTRY["log"], (node.dtype,), node.dtype)


def _top(x: Any, axes: Any) -> Any:
    return np.maximum.reduce(x, axes, None, None, True)


def _sum(x: Any, axes: Any) -> Any:
    return np.add.reduce(x, axes, None, None, True)


def _softmax(node: Node) -> Form:
    (axis,), exp = node.attrs, _exp(node)

    def softmax(x: Any) -> Any:
        e = exp(x - _top(x, axis))
        e /= _sum(e, axis)
        return e

    return softmax


def _safe_softmax(node: Node) -> Form:
    (axis,), exp = node.attrs, _exp(node)

    def softmax(x: Any) -> Any:
        top = _top(x, axis)
        top[top == -np.inf] = 0
        e = exp(x - top)
        total = _sum(e, axis)
        total[total == 0] = 1
        e /= total
        return e

    return softmax


def _log_softmax(node: Node) -> Form:
    (axis,), exp, log = node.attrs, _exp(node), _log(node)

    def log_softmax(x: Any) -> Any:
        x = x - _top(x, axis)
        x -= log(_sum(exp(x), axis))
        return x

    return log_softmax


def _mean(x: Any, axes: Any, count: float) -> Any:
    total = _sum(x, axes)
    total /= count
    return total


def _normalized(node: Node, axes: tuple[int, ...], eps: float) -> Callable[[Any], Any]:
    shape = node.operands[0].shape
    count = float(math.prod([shape[a] for a in axes]))

    def normalized(x: Any) -> Any:
        x = x - _mean(x, axes, count)
        scale = _mean(x * x, axes, count)
        scale += eps
        np.sqrt(scale, scale)
        x /= scale
        return x

    return normalized


def _normalize(node: Node) -> Form:
    return _normalized(node, *node.attrs)


def _layer_norm(node: Node) -> Form:
    rank, eps = node.attrs
    own = node.operands[0].rank
    normalized = _normalized(node, tuple(range(own - rank, own)), eps)

    def layer_norm(x: Any, *parameters: Any) -> Any:
        return _affine(normalized(x), parameters)

    return layer_norm


def _batch_norm(node: Node) -> Form:
    x = node.operands[0]
    normalized = _normalized(node, (0, *range(2, x.rank)), node.attrs[0])
    channels = (1, x.shape[1], *[1] * (x.rank - 2))

    def batch_norm(x: Any, *parameters: Any) -> Any:
        return _affine(normalized(x), [p.reshape(channels) for p in parameters])

    return batch_norm


def _affine(y: Any, parameters: Any) -> Any:
    """y * weight + bias, in the memory of `y`."""
    if parameters:
        y *= parameters[0]
    if len(parameters) > 1:
        y += parameters[1]
    return y


_FORMS: dict[Op, Callable[[Node], Form]] = {
    REGISTRY["linear"]: _linear,
    REGISTRY["softmax"]: _softmax,
    REGISTRY["safe_softmax"]: _safe_softmax,
    REGISTRY["log_softmax"]: _log_softmax,
    REGISTRY["normalize"]: _normalize,
    REGISTRY["layer_norm"]: _layer_norm,
    REGISTRY["batch_norm"]: _batch_norm,
}
