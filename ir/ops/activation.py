"""Activation functions: elementwise, and normalized exponentials along axes.

Their values and slopes at kinks, infinities and NaN are PyTorch's. Where a branch that isn't taken
would overflow, its argument is replaced first; else its zero cotangent times inf would be NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from ..location import at_user_line
from ..node import Node
from ..op import Aval, Op
from ..shape import Size, broadcast
from .binary import bitwise_and, bitwise_or, maximum, minimum
from .composite import composite, like_first, require_float
from .generate import constant
from .movement import expand, slice_axis
from .reduce import max, reduced_shape, sum
from .ternary import where
from .unary import (
    abs,
    erf,
    exp,
    expm1,
    full_like,
    isinf,
    log,
    log1p,
    reciprocal,
    relu,
    sigmoid,
    sign,
    tanh,
    zeros_like,
)


def _activation(
    name: str, f: Callable[..., Node], slope: Callable[..., Node] | None = None, **more: Any
) -> Op:
    """An elementwise composite. `slope(x, *attrs)` is its derivative, whose product with the
    cotangent is a record too; by default the derivative is that of `f`."""
    if slope is None:
        return composite(name, like_first(name), f, pointwise=True, **more)
    grad = composite(
        f"{name}_grad",
        like_first(f"{name}_grad"),
        lambda g, x, *attrs: g * slope(x, *attrs),
        params=more.get("params", ()),
        cost=more["cost"] + 4,
        pointwise=True,
    )

    def vjp(g: Node, out: Node, x: Node, *attrs: Any) -> tuple[Node]:
        return (grad(g, x, *attrs),)

    op = composite(name, like_first(name), f, vjp=vjp, pointwise=True, **more)
    GRADS[op] = grad
    return op


GRADS: dict[Op, Op] = {}
"""Activation -> the record grad(g, x, *attrs) of its cotangent."""


# Normalized exponentials.


def _axes(x: Node, axis: int) -> tuple[int, ...]:
    return (axis,) if x.rank else ()


def _softmax(x: Node, axis: int) -> Node:
    if 0 in x.shape:
        return x
    axes = _axes(x, axis)
    e = exp(x - max(x, axes))
    return e * reciprocal(sum(e, axes))  # one division a row; the sum is at least 1


def _softmax_vjp(g: Node, out: Node, x: Node, axis: int) -> tuple[Node]:
    gy = g * out
    return (gy - out * sum(gy, _axes(x, axis)),)


softmax = composite(
    "softmax",
    like_first("softmax"),
    _softmax,
    vjp=_softmax_vjp,
    params=("axis",),
    onnx="Softmax",
    cost=16,
)
"""softmax(x, axis): exp(x) / sum(exp(x)) along `axis`; NaN where all of it is -inf."""


def _log_softmax(x: Node, axis: int) -> Node:
    if 0 in x.shape:
        return x
    axes = _axes(x, axis)
    shifted = x - max(x, axes)
    return shifted - log(sum(exp(shifted), axes))


log_softmax = composite(
    "log_softmax",
    like_first("log_softmax"),
    _log_softmax,
    vjp=lambda g, out, x, axis: (g - exp(out) * sum(g, _axes(x, axis)),),
    params=("axis",),
    onnx="LogSoftmax",
    cost=16,
)
"""log_softmax(x, axis): x - logsumexp(x) along `axis`."""


def _logsumexp_infer(x: Node, axes: tuple[int, ...]) -> Aval:
    require_float("logsumexp", x)
    return reduced_shape(x.shape, axes), x.dtype


def _logsumexp(x: Node, axes: tuple[int, ...]) -> Node:
    if any(x.shape[a] == 0 for a in axes):
        return expand(constant(-math.inf, x.dtype), reduced_shape(x.shape, axes))
    top = max(x, axes)
    # The maximum of a row may be -inf (nothing else in it) or inf: x - top would be NaN there.
    top = where(isinf(top), zeros_like(top), top)
    return log(sum(exp(x - top), axes)) + top


logsumexp = composite(
    "logsumexp",
    _logsumexp_infer,
    _logsumexp,
    vjp=lambda g, out, x, axes: (g * exp(x - out),),
    params=("axes",),
    onnx="ReduceLogSumExp",
    cost=14,
)
"""logsumexp(x, axes): log(sum(exp(x))) over `axes`, which stay with size 1."""


# Smooth activations.


def _gelu(x: Node, approximate: str) -> Node:
    if approximate == "tanh":
        inner = (x + x * x * x * 0.044715) * math.sqrt(2 / math.pi)
        return x * 0.5 * (tanh(inner) + 1)
    return x * 0.5 * (erf(x * math.sqrt(0.5)) + 1)


def _gelu_slope(x: Node, approximate: str) -> Node:
    if approximate == "tanh":
        gate = tanh((x + x * x * x * 0.044715) * math.sqrt(2 / math.pi))
        steepness = (x * x * (3 * 0.044715) + 1) * math.sqrt(2 / math.pi)
        return ((gate + 1) + x * (1 - gate * gate) * steepness) * 0.5
    density = exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return (erf(x * math.sqrt(0.5)) + 1) * 0.5 + x * density


gelu = _activation("gelu", _gelu, _gelu_slope, params=("approximate",), onnx="Gelu", cost=26)
"""gelu(x, approximate): x Phi(x) with Phi the normal distribution ("none"), or its form with tanh
("tanh"); Hendrycks and Gimpel, arXiv 1606.08415."""


def _silu_slope(x: Node) -> Node:
    gate = sigmoid(x)
    return gate * (x * (1 - gate) + 1)


silu = _activation("silu", lambda x: x * sigmoid(x), _silu_slope, cost=14)
"""x sigmoid(x), also called swish."""


def _softplus(x: Node, beta: float, threshold: float) -> Node:
    scaled = x * beta
    smooth = (relu(scaled) + log1p(exp(-abs(scaled)))) / beta
    return where(scaled > threshold, x, smooth)


def _softplus_slope(x: Node, beta: float, threshold: float) -> Node:
    scaled = x * beta
    return where(scaled > threshold, full_like(x, 1), sigmoid(scaled))


softplus = _activation(
    "softplus",
    _softplus,
    _softplus_slope,
    params=("beta", "threshold"),
    onnx="Softplus",
    cost=26,
)
"""softplus(x, beta, threshold): log(1 + exp(beta x)) / beta, and x where beta x > threshold."""

logsigmoid = _activation(
    "logsigmoid",
    lambda x: minimum(x, zeros_like(x)) - log1p(exp(-abs(x))),
    lambda x: sigmoid(-x),
    cost=26,
)
"""log(sigmoid(x))."""


def _mish_gate(x: Node) -> tuple[Node, Node]:
    """(tanh(log(1 + e)), e) for e = exp(x). The tanh is ((1 + e)^2 - 1) / ((1 + e)^2 + 1), which
    takes one exponential and no logarithm; from x = 20 on it is 1 even in float64."""
    e = exp(minimum(x, full_like(x, 20)))
    n = e * (e + 2)
    return n / (n + 2), e


def _mish_slope(x: Node) -> Node:
    gate, e = _mish_gate(x)
    return gate + x * (e / (e + 1)) * (1 - gate * gate)


mish = _activation("mish", lambda x: x * _mish_gate(x)[0], _mish_slope, onnx="Mish", cost=22)
"""x tanh(softplus(x)); Misra, arXiv 1908.08681."""

softsign = _activation("softsign", lambda x: x / (abs(x) + 1), onnx="Softsign", cost=5)
"""x / (1 + |x|)."""

tanhshrink = _activation("tanhshrink", lambda x: x - tanh(x), cost=13)
"""x - tanh(x)."""


# Exponential below zero.


def _elu(x: Node, alpha: float, inner: float = 1.0) -> Node:
    """x above zero, alpha (exp(x / inner) - 1) below."""
    below = x <= 0
    safe = where(below, x, zeros_like(x))
    return where(below, expm1(safe if inner == 1.0 else safe / inner) * alpha, x)


elu = _activation("elu", _elu, params=("alpha",), onnx="Elu", cost=14)
"""elu(x, alpha): x above zero, alpha (exp(x) - 1) below; Clevert et al., arXiv 1511.07289."""

celu = _activation(
    "celu", lambda x, alpha: _elu(x, alpha, alpha), params=("alpha",), onnx="Celu", cost=15
)
"""celu(x, alpha): x above zero, alpha (exp(x / alpha) - 1) below; Barron, arXiv 1704.07483."""

_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946

selu = _activation("selu", lambda x: _elu(x, _SELU_ALPHA) * _SELU_SCALE, onnx="Selu", cost=15)
"""1.0507 elu(x, 1.6733), whose fixed point is zero mean and unit variance; Klambauer et al.,
arXiv 1706.02515."""


# Piecewise linear activations.

leaky_relu = _activation(
    "leaky_relu",
    lambda x, slope: where(x > 0, x, x * slope),
    params=("negative_slope",),
    onnx="LeakyRelu",
    cost=2,
)
"""leaky_relu(x, negative_slope): x above zero, negative_slope x below."""


def _prelu_infer(x: Node, weight: Node) -> Aval:
    require_float("prelu", x, weight)
    if broadcast(x.shape, weight.shape) != x.shape:
        raise RuntimeError(
            f"prelu: weight of shape {tuple(weight.shape)} doesn't broadcast to the input's "
            f"{tuple(x.shape)}{at_user_line()}"
        )
    return x.shape, x.dtype


prelu = composite(
    "prelu",
    _prelu_infer,
    lambda x, weight: where(x > 0, x, x * weight),
    vjp=lambda g, out, x, weight: (
        where(x > 0, g, g * weight),
        where(x > 0, zeros_like(g), g * x),
    ),
    onnx="PRelu",
    cost=2,
)
"""prelu(x, weight): leaky_relu whose slopes broadcast to `x` (the caller gives [C, 1, …])."""


def _outside(x: Node, low: float, high: float) -> Node:
    return bitwise_or(x <= low, x >= high)


def _between(x: Node, low: float | None, high: float | None) -> Node:
    if low is not None:
        x = maximum(x, full_like(x, low))
    return x if high is None else minimum(x, full_like(x, high))


hardtanh = composite(
    "hardtanh",
    like_first("hardtanh"),
    _between,
    vjp=lambda g, out, x, low, high: (where(_outside(x, low, high), zeros_like(g), g),),
    params=("low", "high"),
    onnx="Clip",
    pointwise=True,
    cost=2,
)
"""hardtanh(x, low, high): `x` limited to [low, high], with slope zero at both ends."""

relu6 = _activation("relu6", lambda x: hardtanh(x, 0.0, 6.0), cost=2)
"""`x` limited to [0, 6]."""


def _clamp_vjp(
    g: Node, out: Node, x: Node, low: float | None, high: float | None
) -> tuple[Node | None]:
    if low is None:
        assert high is not None, "clamp has a bound"
        kept = x <= high
    elif high is None:
        kept = x >= low
    else:
        kept = bitwise_and(x >= low, x <= high)
    return (where(kept, g, zeros_like(g)),)


clamp = composite(
    "clamp",
    lambda x, low, high: (x.shape, x.dtype),
    _between,
    vjp=_clamp_vjp,
    params=("low", "high"),
    onnx="Clip",
    pointwise=True,
    cost=2,
)
"""clamp(x, low, high): `x` limited by numbers of its dtype (either may be None), with slope one at
both ends. Integers too."""


def _limit(
    name: str, is_beyond: Callable[[Node, Node], Node], is_within: Callable[[Node, Node], Node]
) -> Op:
    def value(x: Node, bound: Node) -> Node:
        shape = broadcast(x.shape, bound.shape)
        other = expand(x, shape)
        if bound.rank and x.dtype.is_differentiable:  # an element of the bound may be NaN
            other = where(is_within(x, bound), other, full_like(other, math.nan))
        return where(is_beyond(x, bound), expand(bound, shape), other)

    def vjp(g: Node, out: Node, x: Node, bound: Node) -> tuple[Node, Node]:
        nothing = zeros_like(g)
        return where(is_within(x, bound), g, nothing), where(is_beyond(x, bound), g, nothing)

    return composite(
        name, lambda x, bound: (broadcast(x.shape, bound.shape), x.dtype), value, vjp=vjp, cost=2
    )


at_least = _limit("at_least", operator.lt, operator.ge)
"""at_least(x, low): `x`, or `low` where that is larger; NaN where either is. Where they are equal
the slope is that of `x`, and at NaN it is zero."""

at_most = _limit("at_most", operator.gt, operator.le)
"""at_most(x, high): as at_least, for the other end."""


def _within_vjp(g: Node, out: Node, x: Node, low: Node, high: Node) -> tuple[Node, Node, Node]:
    kept = (bitwise_and(x >= low, x <= high), bitwise_and(x < low, low < high))
    above = bitwise_or(x > high, high < low)
    nothing = zeros_like(g)
    x_, low_, high_ = (where(each, g, nothing) for each in (*kept, above))
    return x_, low_, high_


within = composite(
    "within",
    lambda x, low, high: (broadcast(broadcast(x.shape, low.shape), high.shape), x.dtype),
    lambda x, low, high: at_most(at_least(x, low), high),
    vjp=_within_vjp,
    cost=4,
)
"""within(x, low, high): at_most(at_least(x, low), high). Where bounds are equal, an element above
them gives its gradient to `high`, and one below them to none, as in PyTorch."""

hardsigmoid = composite(
    "hardsigmoid",
    like_first("hardsigmoid"),
    lambda x: hardtanh(x + 3, 0.0, 6.0) / 6,
    vjp=lambda g, out, x: (where(bitwise_and(x > -3, x < 3), g / 6, zeros_like(g)),),
    onnx="HardSigmoid",
    pointwise=True,
    cost=4,
)
"""relu6(x + 3) / 6."""


def _hardswish_vjp(g: Node, out: Node, x: Node) -> tuple[Node]:
    return (where(x <= -3, zeros_like(g), where(x < 3, g * (x / 3 + 0.5), g)),)


hardswish = composite(
    "hardswish",
    like_first("hardswish"),
    lambda x: x * hardtanh(x + 3, 0.0, 6.0) / 6,
    vjp=_hardswish_vjp,
    onnx="HardSwish",
    pointwise=True,
    cost=5,
)
"""x relu6(x + 3) / 6; Howard et al., arXiv 1905.02244."""

threshold = _activation(
    "threshold",
    lambda x, at, value: where(x <= at, full_like(x, value), x),
    params=("threshold", "value"),
    cost=2,
)
"""threshold(x, threshold, value): `x` where it is above the threshold, else `value`."""

hardshrink = _activation(
    "hardshrink",
    lambda x, bound: where(abs(x) <= bound, zeros_like(x), x),
    params=("lambd",),
    onnx="Shrink",
    cost=2,
)
"""hardshrink(x, lambd): `x`, but zero where it lies in [-lambd, lambd]."""

softshrink = _activation(
    "softshrink",
    lambda x, bound: where(abs(x) <= bound, zeros_like(x), x - sign(x) * bound),
    params=("lambd",),
    onnx="Shrink",
    cost=4,
)
"""softshrink(x, lambd): `x` moved towards zero by lambd, at most to zero."""


# Gates.


def _glu_infer(x: Node, axis: int) -> Aval:
    require_float("glu", x)
    if x.rank == 0 or x.shape[axis] % 2:
        raise RuntimeError(
            f"glu: halving dimension must be even, got dimension {axis} of {tuple(x.shape)}"
            f"{at_user_line()}"
        )
    return Size(s // 2 if i == axis else s for i, s in enumerate(x.shape)), x.dtype


def _glu(x: Node, axis: int) -> Node:
    half = x.shape[axis] // 2
    value, gate = slice_axis(x, axis, 0, half), slice_axis(x, axis, half, 2 * half)
    return value * sigmoid(gate)


glu = composite("glu", _glu_infer, _glu, params=("axis",), cost=14)
"""glu(x, axis): the first half along `axis` times the sigmoid of the second; Dauphin et al.,
arXiv 1612.08083."""
