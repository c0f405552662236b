"""Normalizations in inference mode."""

from __future__ import annotations

from typing import Any

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
    if training_mode or not spatial:
        raise NotImplementedError("statistics of the batch, or for each position")
    return F.batch_norm(x, mean, variance, scale, shift, eps=epsilon)


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
) -> Any:
    shape = x.shape[axis:]
    parameters = [None if p is None else f.broadcast_to(p, shape) for p in (scale, shift)]
    return F.layer_norm(x, shape, *parameters, epsilon)


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
