"""Normalizations in inference mode."""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dtypes

from .api import F, f
from .table import operator


@operator("BatchNormalization", state=("mean", "variance"))
def batch_normalization(
    x: Any,
    scale: Any,
    shift: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float = 1e-5,
    momentum: float = 0.9,
    spatial: int = 1,
    is_test: int = 1,
    training_mode: int = 0,
) -> Any:
    """The normed values, and in training mode the running statistics behind them.

    ONNX's momentum is the share of the old statistics, and its variance divides by the count.
    """
    if not spatial:
        raise NotImplementedError("statistics for each position")
    if not training_mode:
        return F.batch_norm(x, mean, variance, scale, shift, eps=epsilon)
    over = [0, *range(2, x.dim())]
    wide = x.to(mean.dtype)
    now = [f.mean(wide, over), f.var(wide, over, correction=0)]
    running = [
        (old * momentum + new * (1 - momentum)).to(old.dtype)
        for old, new in zip((mean, variance), now, strict=True)
    ]
    return F.batch_norm(x, *now, scale, shift, eps=epsilon), *running


@operator("InstanceNormalization")
def instance_normalization(x: Any, scale: Any, shift: Any, *, epsilon: float = 1e-5) -> Any:
    return F.instance_norm(x, weight=scale, bias=shift, eps=epsilon)


@operator("LayerNormalization")
def layer_normalization(
    x: Any,
    scale: Any,
    shift: Any = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
    outputs: int,
) -> Any:
    """The normed values, the means and the inverses of the deviations."""
    shape = x.shape[axis:]
    parameters = [None if p is None else f.broadcast_to(p, shape) for p in (scale, shift)]
    y = F.layer_norm(x, shape, *parameters, epsilon)
    if outputs == 1:
        return y
    over = list(range(axis % x.dim(), x.dim()))
    wide = x if x.dtype is dtypes.float64 else x.to(dtypes.float32)
    mean = f.mean(wide, over, True)
    deviation = f.rsqrt(f.var(wide, over, correction=0, keepdim=True) + epsilon)
    return y, mean, deviation


@operator("RMSNormalization")
def rms_normalization(
    x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    shape = x.shape[axis:]
    return F.rms_norm(x, shape, f.broadcast_to(scale, shape), epsilon)


@operator("GroupNormalization", since=21)
def group_normalization(
    x: Any, scale: Any, shift: Any, *, num_groups: int, epsilon: float = 1e-5, stash_type: int = 1
) -> Any:
    return F.group_norm(x, num_groups, scale, shift, epsilon)


@operator("GroupNormalization", since=18)
def group_normalization_by_groups(
    x: Any, scale: Any, shift: Any, *, num_groups: int, epsilon: float = 1e-5
) -> Any:
    """GroupNormalization with one scale and shift for each group."""
    each = x.shape[1] // num_groups
    wide = [p.reshape(-1, 1).expand(-1, each).reshape(-1) for p in (scale, shift)]
    return F.group_norm(x, num_groups, *wide, epsilon)


@operator("LRN")
def local_response_normalization(
    x: Any, *, size: int, alpha: float = 1e-4, beta: float = 0.75, bias: float = 1.0
) -> Any:
    return F.local_response_norm(x, size, alpha, beta, bias)


@operator("LpNormalization")
def lp_normalization(x: Any, *, axis: int = -1, p: int = 2) -> Any:
    return F.normalize(x, p, axis)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(x: Any, *, axes: list[int] | None = None) -> Any:
    over = [0, 2, 3] if axes is None else axes
    centred = x - f.mean(x, over, True)
    return centred / (f.sqrt(f.mean(centred * centred, over, True)) + 1e-9)
