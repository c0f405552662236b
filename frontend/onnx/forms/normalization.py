"""Normalizations with an ONNX operator of their own."""

from __future__ import annotations

import numpy as np

from tilewright.ir.op import REGISTRY

from ..align import Extent, Traced, Varying
from ..exporter import Exporter, form

_layer_norm = REGISTRY["layer_norm"]
_rms_norm = REGISTRY["rms_norm"]
_group_norm = REGISTRY["group_norm"]
_instance_norm = REGISTRY["instance_norm"]
_batch_norm_eval = REGISTRY["batch_norm_eval"]


def _one_dtype(t: Traced) -> bool:
    """Whether scale and shift have the input's dtype, as these operators require."""
    return all(o.dtype is t.dtype for o in t.operands)


def _filled(e: Exporter, t: Traced, value: int, shape: tuple[Extent, ...]) -> str | None:
    if any(isinstance(s, Varying) for s in shape):
        return None
    return e.constant(np.full(shape, value, t.dtype.np))  # type: ignore[arg-type]


@form(_layer_norm)
def layer_norm(e: Exporter, t: Traced, x: str, *parameters: str) -> str | None:
    rank, eps = t.attrs
    scale = parameters[0] if parameters else _filled(e, t, 1, t.shape[t.rank - rank :])
    if scale is None or rank == 0 or not _one_dtype(t):
        return None
    return e.add("LayerNormalization", x, scale, *parameters[1:], axis=-rank, epsilon=eps)


@form(_rms_norm)
def rms_norm(e: Exporter, t: Traced, x: str, *parameters: str) -> str | None:
    rank, eps = t.attrs
    scale = parameters[0] if parameters else _filled(e, t, 1, t.shape[t.rank - rank :])
    if e.opset < 23 or scale is None or rank == 0 or not _one_dtype(t):
        return None
    return e.add("RMSNormalization", x, scale, axis=-rank, epsilon=eps)


def _channel_parameters(e: Exporter, t: Traced, parameters: tuple[str, ...]) -> list[str] | None:
    """Scale and shift of each channel, with ones and zeros for missing ones."""
    channels = (t.shape[1],)
    given = [*parameters, *[None] * (2 - len(parameters))]
    out = [_filled(e, t, 1 - i, channels) if name is None else name for i, name in enumerate(given)]
    return None if None in out or not _one_dtype(t) else [name for name in out if name is not None]


@form(_group_norm)
def group_norm(e: Exporter, t: Traced, x: str, *parameters: str) -> str | None:
    groups, eps = t.attrs
    both = _channel_parameters(e, t, parameters)
    if e.opset < 21 or both is None:  # earlier opsets have one scale and shift for each group
        return None
    return e.add("GroupNormalization", x, *both, num_groups=groups, epsilon=eps)


@form(_instance_norm)
def instance_norm(e: Exporter, t: Traced, x: str, *parameters: str) -> str | None:
    both = _channel_parameters(e, t, parameters)
    return None if both is None else e.add("InstanceNormalization", x, *both, epsilon=t.attrs[0])


@form(_batch_norm_eval)
def batch_norm_eval(
    e: Exporter, t: Traced, x: str, mean: str, variance: str, *parameters: str
) -> str | None:
    both = _channel_parameters(e, t, parameters)
    if both is None:
        return None
    return e.add("BatchNormalization", x, *both, mean, variance, epsilon=t.attrs[0])


# `normalize` is decomposed, because MeanVarianceNormalization has a fixed epsilon. `batch_norm` by
# the moments of the batch is decomposed too, because inference doesn't use it.
