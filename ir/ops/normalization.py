"""Normalization: layer, group, instance and batch norm, and rms norm.

They all rest on one record, `normalize`, whose gradient has two independent reductions; scale and
shift are plain arithmetic around it. The variance is taken in two passes, mean((x - mean(x))^2),
and the statistics of half types in float32. With a half `x`, scale and shift may be float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..location import at_user_line
from ..node import Node
from ..op import Aval
from ..shape import Size
from .composite import composite, like_first, require_float, widen
from .movement import reshape, sum_to
from .reduce import mean, sum
from .unary import full_like, rsqrt, sqrt


def _variance(x: Node, axes: Sequence[int]) -> Node:
    centred = x - mean(x, axes)
    return mean(centred * centred, axes)


def _normalize(x: Node, axes: tuple[int, ...], eps: float) -> Node:
    return (x - mean(x, axes)) * rsqrt(_variance(x, axes) + eps)


def _normalize_vjp(g: Node, out: Node, x: Node, axes: tuple[int, ...], eps: float) -> tuple[Node]:
    return (normalize_grad(g, x, axes, eps),)


def _normalize_grad(g: Node, x: Node, axes: tuple[int, ...], eps: float) -> Node:
    # With y the normalized values and s the deviation, dx = (g - mean(g) - y mean(g y)) / s. y
    # comes from x, not from `out`, which was rounded: the recomputation fuses, reading `out` would
    # not pay.
    y = _normalize(x, axes, eps)
    scale = rsqrt(_variance(x, axes) + eps)
    return (g - mean(g, axes) - y * mean(g * y, axes)) * scale


normalize_grad = composite(
    "normalize_grad",
    like_first("normalize_grad"),
    _normalize_grad,
    params=("axes", "eps"),
    cost=20,
)
"""normalize_grad(g, x, axes, eps): the cotangent of `x`, given that of normalize(x, axes, eps)."""

normalize = composite(
    "normalize",
    like_first("normalize"),
    _normalize,
    vjp=_normalize_vjp,
    params=("axes", "eps"),
    onnx="MeanVarianceNormalization",
    cost=10,
)
"""normalize(x, axes, eps): (x - mean) / sqrt(var + eps) with the moments over `axes`."""


def _affine(y: Node, parameters: Sequence[Node], shape: Sequence[int] | None = None) -> Node:
    """y * weight + bias, with as many of them as there are, each reshaped to `shape`."""
    weight, bias = [*parameters, None, None][:2]
    if weight is not None:
        y = y * (weight if shape is None else reshape(weight, shape))
    if bias is not None:
        y = y + (bias if shape is None else reshape(bias, shape))
    return y


def _parameters(weight: Node | None, bias: Node | None) -> tuple[Node, ...]:
    """Scale and shift as operands; a shift alone gets a scale of ones, which simplifies away."""
    if bias is None:
        return () if weight is None else (weight,)
    return (full_like(bias, 1) if weight is None else weight, bias)


def _check_shape(name: str, parameters: Sequence[Node], shape: Sequence[int]) -> None:
    for each in parameters:
        require_float(name, each)
        if each.shape != tuple(shape):
            raise RuntimeError(
                f"{name}: expected weight and bias of shape {tuple(shape)}, "
                f"got {tuple(each.shape)}{at_user_line()}"
            )


# The composites take (x, weight?, bias?, *attrs).


def _split(args: Sequence[Any]) -> tuple[tuple[Node, ...], tuple[Any, ...]]:
    nodes = tuple(a for a in args if isinstance(a, Node))
    return nodes, tuple(args[len(nodes) :])


def _trailing(x: Node, rank: int) -> tuple[int, ...]:
    return tuple(range(x.rank - rank, x.rank))


def _trailing_infer(name: str) -> Any:
    def infer(x: Node, *args: Any) -> Aval:
        parameters, (rank, _) = _split(args)
        require_float(name, x)
        _check_shape(name, parameters, x.shape[x.rank - rank :])
        return x.shape, x.dtype

    return infer


def _layer_norm(x: Node, *args: Any) -> Node:
    parameters, (rank, eps) = _split(args)
    return _affine(normalize(x, _trailing(x, rank), eps), parameters)


def _layer_norm_vjp(g: Node, out: Node, x: Node, *args: Any) -> tuple[Node | None, ...]:
    parameters, (rank, eps) = _split(args)
    scaled = g * parameters[0] if parameters else g
    dx = normalize_grad(scaled, x, _trailing(x, rank), eps)
    if not parameters:
        return (dx,)
    dw = layer_norm_weight_grad(g, x, rank, eps)
    return dx, dw, *[sum_to(g, bias.shape) for bias in parameters[1:]]


layer_norm_weight_grad = composite(
    "layer_norm_weight_grad",
    lambda g, x, rank, eps: (Size(x.shape[x.rank - rank :]), g.dtype),
    lambda g, x, rank, eps: sum_to(
        g * normalize(x, _trailing(x, rank), eps), x.shape[x.rank - rank :]
    ),
    params=("rank", "eps"),
    cost=12,
    aten="native_layer_norm_backward",
)
"""layer_norm_weight_grad(g, x, rank, eps): the cotangent of the scale, of the last `rank` sizes."""

layer_norm_op = composite(
    "layer_norm",
    _trailing_infer("layer_norm"),
    _layer_norm,
    vjp=_layer_norm_vjp,
    params=("rank", "eps"),
    onnx="LayerNormalization",
    cost=12,
)


def layer_norm(
    x: Node, rank: int, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """normalize over the last `rank` axes, times weight plus bias of their shape; Ba et al., arXiv
    1607.06450."""
    return layer_norm_op(x, *_parameters(weight, bias), rank, eps)


def _rms_norm(x: Node, *args: Any) -> Node:
    parameters, (rank, eps) = _split(args)
    return _affine(x * rsqrt(mean(x * x, _trailing(x, rank)) + eps), parameters)


_rms_norm_op = composite(
    "rms_norm",
    _trailing_infer("rms_norm"),
    _rms_norm,
    params=("rank", "eps"),
    onnx="RMSNormalization",
    cost=8,
)


def rms_norm(x: Node, rank: int, weight: Node | None = None, eps: float = 1e-5) -> Node:
    """x / sqrt(mean(x^2) + eps) over the last `rank` axes, times weight; Zhang and Sennrich, arXiv
    1910.07467."""
    return _rms_norm_op(x, *_parameters(weight, None), rank, eps)


# Channels are dimension 1: x[n, c, ...] with weight[c] and bias[c].


def _per_channel(x: Node) -> tuple[int, ...]:
    return (1, x.shape[1], *(1 for _ in x.shape[2:]))


def _channel_infer(name: str, least: int = 2) -> Callable[..., Aval]:
    def infer(x: Node, *args: Any) -> Aval:
        parameters, _ = _split(args)
        require_float(name, x)
        if x.rank < least:
            raise RuntimeError(
                f"{name}: expected an input with at least {least} dimensions, "
                f"got {tuple(x.shape)}{at_user_line()}"
            )
        _check_shape(name, parameters, (x.shape[1],))
        return x.shape, x.dtype

    return infer


def _group_infer(x: Node, *args: Any) -> Aval:
    _, (groups, _) = _split(args)
    aval = _channel_infer("group_norm")(x, *args)
    if groups <= 0 or x.shape[1] % groups:
        raise RuntimeError(
            f"group_norm: expected a number of channels divisible by num_groups={groups}, "
            f"got {tuple(x.shape)}{at_user_line()}"
        )
    return aval


def _group_norm(x: Node, *args: Any) -> Node:
    parameters, (groups, eps) = _split(args)
    size = math.prod(x.shape[1:]) // groups
    y = reshape(normalize(reshape(x, (x.shape[0], groups, size)), (2,), eps), x.shape)
    return _affine(y, parameters, _per_channel(x))


_group_norm_op = composite(
    "group_norm",
    _group_infer,
    _group_norm,
    params=("groups", "eps"),
    onnx="GroupNormalization",
    cost=12,
)


def group_norm(
    x: Node, groups: int, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """normalize over each of `groups` groups of channels of x[n, c, ...] and all their positions,
    times weight[c] plus bias[c]; Wu and He, arXiv 1803.08494."""
    return _group_norm_op(x, *_parameters(weight, bias), groups, eps)


def _instance_norm(x: Node, *args: Any) -> Node:
    parameters, (eps,) = _split(args)
    return _affine(normalize(x, tuple(range(2, x.rank)), eps), parameters, _per_channel(x))


_instance_norm_op = composite(
    "instance_norm",
    _channel_infer("instance_norm", 3),
    _instance_norm,
    params=("eps",),
    onnx="InstanceNormalization",
    cost=12,
)


def instance_norm(
    x: Node, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """normalize over the positions of each channel of x[n, c, ...], times weight[c] plus bias[c];
    Ulyanov et al., arXiv 1607.08022."""
    return _instance_norm_op(x, *_parameters(weight, bias), eps)


def _batch_axes(x: Node) -> tuple[int, ...]:
    return (0, *range(2, x.rank))


def _batch_norm(x: Node, *args: Any) -> Node:
    parameters, (eps,) = _split(args)
    return _affine(normalize(x, _batch_axes(x), eps), parameters, _per_channel(x))


batch_norm_op = composite(
    "batch_norm",
    _channel_infer("batch_norm"),
    _batch_norm,
    params=("eps",),
    onnx="BatchNormalization",
    cost=12,
)


def batch_norm(
    x: Node, weight: Node | None = None, bias: Node | None = None, eps: float = 1e-5
) -> Node:
    """In training: normalize each channel of x[n, c, ...] by the moments of the batch, times
    weight[c] plus bias[c]; Ioffe and Szegedy, arXiv 1502.03167.

    `batch_mean` and `batch_variance` are the same nodes once lowered, for the running statistics.
    """
    return batch_norm_op(x, *_parameters(weight, bias), eps)


def batch_mean(x: Node) -> Node:
    """The mean of each channel of x[n, c, ...], of shape [c], in the accumulator's dtype."""
    return reshape(mean(widen(x), _batch_axes(x)), (x.shape[1],))


def batch_variance(x: Node, unbiased: bool = True) -> Node:
    """The variance of each channel of x[n, c, ...], of shape [c], in the accumulator's dtype.

    `unbiased` divides by the number of elements less one, as running statistics do.
    """
    variance = reshape(_variance(widen(x), _batch_axes(x)), (x.shape[1],))
    count = math.prod(x.shape) // x.shape[1] if x.shape[1] else 0
    if not unbiased:
        return variance
    return variance * (count / (count - 1) if count != 1 else math.nan)


def _batch_norm_eval_infer(x: Node, average: Node, variance: Node, *args: Any) -> Aval:
    return _channel_infer("batch_norm")(x, average, variance, *args)


def _batch_norm_eval(x: Node, average: Node, variance: Node, *args: Any) -> Node:
    parameters, (eps,) = _split(args)
    shape = _per_channel(x)
    scale = 1 / sqrt(variance + eps)
    if parameters:
        scale = scale * parameters[0]
    y = (x - reshape(average, shape)) * reshape(scale, shape)
    return y + reshape(parameters[1], shape) if parameters[1:] else y


_batch_norm_eval_op = composite(
    "batch_norm_eval",
    _batch_norm_eval_infer,
    _batch_norm_eval,
    params=("eps",),
    onnx="BatchNormalization",
    cost=4,
)


def batch_norm_eval(
    x: Node,
    average: Node,
    variance: Node,
    weight: Node | None = None,
    bias: Node | None = None,
    eps: float = 1e-5,
) -> Node:
    """In inference: (x - average[c]) / sqrt(variance[c] + eps) times weight[c] plus bias[c]."""
    return _batch_norm_eval_op(x, average, variance, *_parameters(weight, bias), eps)


def moments(x: Node, axes: Sequence[int], correction: float = 0) -> tuple[Node, Node]:
    """Mean and variance over `axes` (which stay with size 1), in float32 for halves.

    The divisor of the variance is the number of elements less `correction`, as in torch.var_mean.
    """
    x = widen(x)
    average = mean(x, axes)
    centred = x - average
    count = math.prod(x.shape[a] for a in axes)
    return average, sum(centred * centred, axes) / float(max(count - correction, 0))
