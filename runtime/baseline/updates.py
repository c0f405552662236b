"""Forms of optimizers' updates, which round as the primitives do and reuse their memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dtype import float32, float64
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.update import adam_update, descended, running_mean, running_square

Form = Callable[..., Any]


def form_of(node: Node) -> Form | None:
    """The form of an update whose operands have one dtype and, unless they are 0-d, one shape; None
    for others."""
    dtype, shape = node.dtype, node.shape
    if dtype not in (float32, float64) or not shape:
        return None
    if any(o.dtype is not dtype or (o.shape and o.shape != shape) for o in node.operands):
        return None
    return _FORMS[node.op](*[np.asarray(a, dtype.np)[()] for a in _numbers(node)])


def _numbers(node: Node) -> tuple[float, ...]:
    """The numbers that a form multiplies or adds."""
    if node.op in (running_mean, running_square):
        (beta,) = node.attrs
        return beta, 1 - beta
    return node.attrs


def _descended() -> Form:
    def descended(x: Any, direction: Any, rate: Any) -> Any:
        out = np.multiply(direction, rate, order="C")  # a direction may be turned
        return np.subtract(x, out, out)

    return descended


def _running_mean(beta: Any, share: Any) -> Form:
    def running_mean(mean: Any, x: Any) -> Any:
        out = np.subtract(x, mean, order="C")
        out *= share
        out += mean
        return out

    return running_mean


def _running_square(beta: Any, share: Any) -> Form:
    def running_square(mean: Any, x: Any) -> Any:
        out = np.multiply(x, x, order="C")
        out *= share
        out += np.multiply(mean, beta)
        return out

    return running_square


def _adam_update(eps: Any) -> Form:
    def adam_update(x: Any, first: Any, second: Any, rate: Any, root: Any) -> Any:
        out = np.sqrt(second, order="C")
        out /= root
        out += eps
        np.divide(first, out, out)
        out *= rate
        return np.subtract(x, out, out)

    return adam_update


_FORMS: dict[Op, Callable[..., Form]] = {
    descended: _descended,
    running_mean: _running_mean,
    running_square: _running_square,
    adam_update: _adam_update,
}
UPDATES = frozenset(_FORMS)
