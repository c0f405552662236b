"""Losses of a prediction `x` and a target, element by element.

Each takes a `reduction` last: "none", "mean" or "sum"; the last two give a 0-d result. Losses of
half types are computed and summed in float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..location import at_user_line
from ..node import Node
from ..op import Aval, Op
from ..shape import Size, broadcast
from .activation import clamp, logsigmoid
from .binary import eq, maximum
from .composite import composite, require_float
from .movement import reshape
from .reduce import mean, sum
from .ternary import where
from .unary import abs, exp, full_like, log, log1p, sign, zeros_like

REDUCTIONS = ("none", "mean", "sum")


def check_reduction(name: str, reduction: str) -> None:
    """ValueError unless `reduction` is one of REDUCTIONS."""
    if reduction not in REDUCTIONS:
        raise ValueError(f"{name}: {reduction} is not a valid value for reduction{at_user_line()}")


def reduced(loss: Node, reduction: str) -> Node:
    """`loss` after its reduction."""
    every = tuple(range(loss.rank))
    if reduction == "none":
        return loss
    return reshape((mean if reduction == "mean" else sum)(loss, every), ())


def _loss(
    name: str,
    value: Callable[..., Node],
    slopes: Callable[..., tuple[Node | None, ...]] | None = None,
    *,
    params: tuple[str, ...] = (),
    **more: Any,
) -> Op:
    """The record of value(*operands, *attrs), reduced. `slopes` are the partial derivatives, one
    for each operand; without them `value` is derived."""

    def split(args: Sequence[Any]) -> tuple[tuple[Node, ...], tuple[Any, ...]]:
        count = len(args) - len(params) - 1
        return tuple(args[:count]), tuple(args[count:])

    def infer(*args: Any) -> Aval:
        nodes, (*_, reduction) = split(args)
        require_float(name, *nodes)
        check_reduction(name, reduction)
        shape = broadcast(*(n.shape for n in nodes))
        return (shape if reduction == "none" else Size()), nodes[0].dtype

    def decompose(*args: Any) -> Node:
        *rest, reduction = args
        return reduced(value(*rest), reduction)

    def vjp(g: Node, out: Node, *args: Any) -> tuple[Node | None, ...]:
        nodes, (*_, reduction) = split(args)
        assert slopes is not None
        if reduction == "mean":
            g = g / float(broadcast(*(n.shape for n in nodes)).numel() or 1)
        return tuple(None if slope is None else g * slope for slope in slopes(*args[:-1]))

    return composite(
        name,
        infer,
        decompose,
        vjp=None if slopes is None else vjp,
        params=(*params, "reduction"),
        **more,
    )


def _of_difference(
    name: str, value: Callable[..., Node], slope: Callable[..., Node], **more: Any
) -> Op:
    """A loss of x - target."""

    def slopes(x: Node, target: Node, *attrs: Any) -> tuple[Node, Node]:
        s = slope(x - target, *attrs)
        return s, -s

    return _loss(name, lambda x, target, *attrs: value(x - target, *attrs), slopes, **more)


mse_loss = _of_difference("mse_loss", lambda d: d * d, lambda d: d * 2, cost=2)
"""mse_loss(x, target, reduction): (x - target)^2."""

l1_loss = _of_difference("l1_loss", abs, sign, cost=2)
"""l1_loss(x, target, reduction): |x - target|."""


def _smooth_l1(d: Node, beta: float) -> Node:
    size = abs(d)
    if beta == 0:
        return size
    return where(size < beta, d * d * (0.5 / beta), size - 0.5 * beta)


smooth_l1_loss = _of_difference(
    "smooth_l1_loss",
    _smooth_l1,
    lambda d, beta: sign(d) if beta == 0 else clamp(d / beta, -1.0, 1.0),
    params=("beta",),
    cost=6,
)
"""smooth_l1_loss(x, target, beta, reduction): with d = x - target, d^2 / (2 beta) where |d| < beta,
else |d| - beta / 2; Girshick, arXiv 1504.08083."""

huber_loss = _of_difference(
    "huber_loss",
    lambda d, delta: where(abs(d) <= delta, d * d * 0.5, (abs(d) - 0.5 * delta) * delta),
    lambda d, delta: clamp(d, -delta, delta),
    params=("delta",),
    cost=6,
)
"""huber_loss(x, target, delta, reduction): with d = x - target, d^2 / 2 where |d| <= delta, else
delta (|d| - delta / 2)."""


# Binary cross entropy.


def _log(x: Node) -> Node:
    """log(x), not below -100, so that a wrong certainty costs much and not everything."""
    return maximum(log(x), full_like(x, -100))


def _log_of_rest(x: Node) -> Node:
    return maximum(log1p(-x), full_like(x, -100))


def _bce(x: Node, target: Node, *weight: Node) -> Node:
    loss = (target - 1) * _log_of_rest(x) - target * _log(x)
    return loss * weight[0] if weight else loss


def _bce_slopes(x: Node, target: Node, *weight: Node) -> tuple[Node | None, ...]:
    dx = (x - target) / maximum((1 - x) * x, full_like(x, 1e-12))
    dt = _log_of_rest(x) - _log(x)
    if not weight:
        return dx, dt
    return dx * weight[0], dt * weight[0], _bce(x, target)


_bce_op = _loss("binary_cross_entropy", _bce, _bce_slopes, cost=30)


def binary_cross_entropy(x: Node, target: Node, weight: Node | None, reduction: str) -> Node:
    """-weight (target log(x) + (1 - target) log(1 - x)) of probabilities, logs not below -100."""
    return _bce_op(x, target, *(() if weight is None else (weight,)), reduction)


def _bce_with_logits(x: Node, target: Node, *args: Any) -> Node:
    *extra, has_pos_weight = args
    log_p = logsigmoid(x)
    if has_pos_weight:
        pos_weight, *extra = extra
        log_p = log_p * ((pos_weight - 1) * target + 1)
    loss = (1 - target) * x - log_p
    return loss * extra[0] if extra else loss


_bce_with_logits_op = _loss(
    "binary_cross_entropy_with_logits", _bce_with_logits, params=("has_pos_weight",), cost=32
)


def binary_cross_entropy_with_logits(
    x: Node, target: Node, weight: Node | None, pos_weight: Node | None, reduction: str
) -> Node:
    """-weight (pos_weight target log(p) + (1 - target) log(1 - p)) with p = sigmoid(x), stable."""
    extra = tuple(n for n in (pos_weight, weight) if n is not None)
    return _bce_with_logits_op(x, target, *extra, pos_weight is not None, reduction)


# Kullback-Leibler divergence.


def _kl_div(x: Node, target: Node, log_target: bool) -> Node:
    if log_target:
        return exp(target) * (target - x)
    zero = eq(target, zeros_like(target))
    safe = where(zero, full_like(target, 1), target)
    return where(zero, zeros_like(target), target * log(safe)) - target * x


_kl_div_op = _loss("kl_div", _kl_div, params=("log_target",), cost=16)


def kl_div(x: Node, target: Node, log_target: bool, reduction: str) -> Node:
    """target (log(target) - x), `x` being log-probabilities, and 0 log(0) being 0.

    With `log_target` the target is the logarithm. "batchmean" divides the sum by the first size.
    """
    if reduction != "batchmean":
        return _kl_div_op(x, target, log_target, reduction)
    total = _kl_div_op(x, target, log_target, "sum")
    return total / float(x.shape[0]) if x.rank else total
