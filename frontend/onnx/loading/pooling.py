"""Pooling of x[n, c, *size]."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir import ops

from ...recording import record
from .api import f
from .linear import Pairs, padding
from .table import operator


def _padding(
    sizes: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
) -> Pairs:
    """The padding, with additions at the high end for the windows that `ceil_mode` adds."""
    pairs = padding(sizes, kernel, strides, dilations, pads, auto_pad)
    if not ceil_mode:
        return pairs
    out = []
    for n, k, s, d, (low, high) in zip(sizes, kernel, strides, dilations, pairs, strict=True):
        extent = d * (k - 1) + 1
        windows = -(-(n + low + high - extent) // s) + 1
        if (windows - 1) * s >= n + low:  # the last window would begin in the padding
            windows -= 1
        out.append((low, max((windows - 1) * s + extent - n - low, high)))
    return out


@operator("MaxPool")
def max_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
) -> Any:
    dims, sizes = len(kernel_shape), x.shape[2:]
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    pairs = _padding(sizes, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    windows = tuple(kernel_shape), tuple(strides), tuple(pairs), tuple(dilations)
    return record(ops.max_pool, x, *windows)


@operator("AveragePool")
def average_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    dims, sizes = len(kernel_shape), x.shape[2:]
    strides, ones = strides or [1] * dims, [1] * dims
    if dilations not in (None, ones):
        raise NotImplementedError(f"dilations {dilations}")
    pairs = _padding(sizes, kernel_shape, strides, ones, pads, auto_pad, ceil_mode)
    if count_include_pad and any(low < high for low, high in pairs):
        # Zeros that count become data. Padding by ceil_mode doesn't count.
        counted = padding(sizes, kernel_shape, strides, ones, pads, auto_pad)
        x = record(ops.pad, x, *_low_high(counted, x.dim()))
        pairs = [(0, high - end) for (_, high), (_, end) in zip(pairs, counted, strict=True)]
    windows = tuple(kernel_shape), tuple(strides), tuple(pairs)
    return record(ops.avg_pool, x, *windows, bool(count_include_pad), 0)


def _low_high(pairs: Pairs, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lead = (0,) * (rank - len(pairs))
    return (*lead, *(p[0] for p in pairs)), (*lead, *(p[1] for p in pairs))


@operator("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return f.mean(x, list(range(2, x.dim())), True)


@operator("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return f.amax(x, list(range(2, x.dim())), True)
