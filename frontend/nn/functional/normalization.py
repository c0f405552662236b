"""Normalization."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import accumulator
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ... import recording
from ...functions.call import public
from ...functions.elementwise import ON_A_GPU
from ...functions.promotion import WHOLE, floating, refuse, to
from ...recording import record
from ...recording.builders import builder

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _check_parameters(x: Node, *parameters: Node | None) -> None:
    """Raise unless all parameters have the dtype of `x`, or float32 where `x` is of a half type."""
    found = [p.dtype for p in parameters if p is not None]
    if all(dtype is x.dtype for dtype in found):
        return
    wanted = x.dtype if found[0] is x.dtype else dtypes.float32
    other = next((dtype for dtype in found if dtype is not wanted), None)
    if other is not None:
        raise RuntimeError(
            f"mixed dtype: expect parameter to have scalar type of {wanted} for an input of "
            f"{x.dtype}, got {other}{at_user_line()}"
        )
    if x.dtype not in (dtypes.float16, dtypes.bfloat16):
        raise RuntimeError(
            f"mixed dtype: all inputs must share same datatype, got an input of {x.dtype} and "
            f"parameters of {wanted}{at_user_line()}"
        )


def _fitting(x: Tensor, normalized_shape: Sequence[int]) -> int:
    """The number of the last dimensions that a norm is over; RuntimeError unless `x` has them."""
    shape = tuple(normalized_shape)
    if not shape or x.shape[-len(shape) :] != shape:
        raise RuntimeError(
            f"Given normalized_shape={list(shape)}, expected input with shape "
            f"[*{''.join(f', {s}' for s in shape)}], but got input of size{list(x.shape)}"
            f"{at_user_line()}"
        )
    return len(shape)


def _layer_norm(x: Node, dims: int, weight: Node | None, bias: Node | None, eps: float) -> Node:
    _check_parameters(x, weight, bias)
    return ops.layer_norm(x, dims, weight, bias, eps)


@public(
    "layer_norm",
    _layer_norm,
    method=False,
    casts=ON_A_GPU,
    gradient="NativeLayerNormBackward0",
)
def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over the last dimensions, times weight plus bias."""
    return record(_layer_norm, input, _fitting(input, normalized_shape), weight, bias, eps)


def _rms_norm(x: Node, dims: int, weight: Node | None, eps: float | None) -> Node:
    refuse("rms_norm", x, *WHOLE)
    if eps is None:
        eps = float(np.finfo(accumulator(x.dtype).np).eps)
    if weight is not None and dtypes.float64 in (x.dtype, weight.dtype):
        weight = to(weight, x.dtype)
    if x.dtype.is_complex:
        axes = tuple(range(x.rank - dims, x.rank))
        scaled = x * ops.rsqrt(ops.mean(x * x, axes) + eps)
        return scaled if weight is None else scaled * weight
    return ops.rms_norm(x, dims, weight, eps)


@public("rms_norm", _rms_norm, method=False, casts=ON_A_GPU, gradient="MulBackward0")
def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """x / sqrt(mean(x^2) + eps) over the last dimensions, times weight.

    eps is by default the distance from 1 to the dtype's next number; half dtypes take float32's.
    """
    return record(_rms_norm, input, _fitting(input, normalized_shape), weight, eps)


def _group_norm(x: Node, groups: int, weight: Node | None, bias: Node | None, eps: float) -> Node:
    _check_parameters(x, weight, bias)
    return ops.group_norm(x, groups, weight, bias, eps)


@public(
    "group_norm",
    _group_norm,
    method=False,
    casts=ON_A_GPU,
    gradient="NativeGroupNormBackward0",
)
def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) over groups of channels (dimension 1) and all positions."""
    return record(_group_norm, input, operator.index(num_groups), weight, bias, eps)


# Batch norm.

_BATCH_NORM = "NativeBatchNormBackward0"


@builder("batch_norm", gradient=_BATCH_NORM)
def _batch_norm_train(
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    count: Node | None,
    momentum: float | None,
    eps: float,
) -> tuple[Node, ...]:
    """The normalized batch, and the updated running mean, variance and count, if there are any."""
    _check_values(x, "batch_norm")
    _check_parameters(x, weight, bias, mean, variance)
    out = [ops.batch_norm(x, weight, bias, eps)]
    one = None if count is None else count + 1
    if mean is not None and variance is not None:
        still = ops.detach(x)
        for old, new in (
            (mean, ops.batch_mean(still)),
            (variance, ops.batch_variance(still)),
        ):
            new = to(new, old.dtype)
            if 0 in x.shape:  # an empty batch has no moments
                out.append(old)
            elif momentum is not None:
                out.append(old * (1 - momentum) + new * momentum)
            else:  # the average over all batches so far
                assert one is not None, "a cumulative average needs the count of batches"
                out.append(old + (new - old) / to(one, old.dtype))
    if one is not None:
        out.append(one)
    return tuple(out)


def _check_values(x: Node, name: str) -> None:
    if x.rank < 2 or x.shape.numel() // max(x.shape[1], 1) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {x.shape}"
            f"{at_user_line()}"
        )


def batch_norm_step(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor | None,
    variance: Tensor | None,
    count: Tensor | None,
    momentum: float | None,
    eps: float,
) -> Tensor:
    """Batch norm in training; the running statistics and the count are updated in place."""
    made = record(_batch_norm_train, input, weight, bias, mean, variance, count, momentum, eps)
    places = [t for t in (mean, variance, count) if t is not None]
    for place, new in zip(places, made[1:], strict=True):
        recording.assign(place, recording.resolve(new))
    return made[0]


@builder("batch_norm", gradient=_BATCH_NORM)
def _batch_norm_eval(
    x: Node, mean: Node, variance: Node, weight: Node | None, bias: Node | None, eps: float
) -> Node:
    _check_parameters(x, weight, bias, mean, variance)
    return ops.batch_norm_eval(x, mean, variance, weight, bias, eps)


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) of each channel (dimension 1), times weight plus bias.

    Training uses the moments of the batch, and moves the running statistics (if given) towards
    them in place, by the share `momentum`. Otherwise the running statistics are used.
    """
    if input.shape == (0,):  # as a batch of nothing
        return input.clone()
    if training:
        return batch_norm_step(input, weight, bias, running_mean, running_var, None, momentum, eps)
    if running_mean is None or running_var is None:
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when training=False"
            f"{at_user_line()}"
        )
    return record(_batch_norm_eval, input, running_mean, running_var, weight, bias, eps)


@builder("instance_norm", gradient="ViewBackward0")
def _instance_norm_train(
    x: Node,
    weight: Node | None,
    bias: Node | None,
    mean: Node | None,
    variance: Node | None,
    momentum: float,
    eps: float,
) -> tuple[Node, ...]:
    _check_parameters(x, weight, bias, mean, variance)
    out = [ops.instance_norm(x, weight, bias, eps)]
    if mean is not None and variance is not None:
        axes = tuple(range(2, x.rank))
        average, spread = ops.moments(ops.detach(x), axes, 1)
        for old, new in ((mean, average), (variance, spread)):
            new = ops.reshape(ops.mean(new, (0,)), old.shape)
            out.append(old * (1 - momentum) + to(new, old.dtype) * momentum)
    return tuple(out)


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """(x - mean) / sqrt(var + eps) of each channel of each sample, times weight plus bias."""
    if not use_input_stats:
        return record(_batch_norm_eval, input, running_mean, running_var, weight, bias, eps)
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(
            "Expected more than 1 spatial element when training, got input size "
            f"{input.shape}{at_user_line()}"
        )
    made = record(
        _instance_norm_train, input, weight, bias, running_mean, running_var, momentum, eps
    )
    for place, new in zip((running_mean, running_var), made[1:], strict=False):
        recording.assign(place, recording.resolve(new))
    return made[0]


@builder("local_response_norm", gradient="DivBackward0")
def _local_response_norm(x: Node, size: int, alpha: float, beta: float, k: float) -> Node:
    if x.dtype is not dtypes.int64:
        refuse("avg_pool2d", x, *WHOLE, dtypes.COMPLEX)
    square = x * x
    low, high = [0] * x.rank, [0] * x.rank
    low[1], high[1] = size // 2, (size - 1) // 2
    windows = ops.windows(ops.pad(square, low, high), (1,), (size,), (1,), (1,))
    last = windows.rank - 1
    if x.dtype is dtypes.int64:  # means without their fractions
        total = ops.squeeze(ops.sum(windows, (last,)), (last,))
        mean = floating(ops.floor_divide(total, ops.full_like(total, size)))
        x = floating(x)
    else:
        mean = ops.squeeze(ops.mean(windows, (last,)), (last,))
    base = mean * alpha + k
    return x / ops.pow(base, ops.full_like(base, beta))


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """x / (k + alpha mean of x^2 over `size` neighbouring channels)^beta."""
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)"
            + at_user_line()
        )
    return record(_local_response_norm, input, int(size), float(alpha), float(beta), float(k))


# Functions torch.x that take their arguments in another order than nn.functional's.


@public("batch_norm", method=False)
def batch_norm_of_torch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.batch_norm`."""
    return batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)


@public("instance_norm", method=False)
def instance_norm_of_torch(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool,
) -> Tensor:
    """`nn.functional.instance_norm`."""
    return instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )
