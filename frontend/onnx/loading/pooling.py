"""Pooling of x[n, c, *size]."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops

from ...functions import creation, ranges
from ...recording import record
from .api import F, f
from .linear import Pairs, flat, padding
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
    outputs: int,
) -> Any:
    dims, sizes = len(kernel_shape), x.shape[2:]
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    pairs = _padding(sizes, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    windows = tuple(kernel_shape), tuple(strides), tuple(pairs), tuple(dilations)
    wide = x if x.dtype.is_floating_point else x.to(dtypes.float32)  # bytes: exact
    y = record(ops.max_pool, wide, *windows).to(x.dtype)
    if outputs == 1:
        return y
    return y, _flat_places(record(ops.max_pool_indices, wide, *windows), x, storage_order)


def _flat_places(places: Any, x: Any, column_major: int) -> Any:
    """Positions in the flattened x, from those in the pooled dimensions."""
    sizes = [int(n) for n in x.shape[2:]]
    if column_major:
        parts = []
        for n in sizes[::-1]:
            parts.append(f.remainder(places, n))
            places = f.div(places, n, rounding_mode="floor")
        places = parts[0]  # of the last dimension, which now counts most
        for part, n in zip(parts[1:], sizes[:-1][::-1], strict=True):
            places = places * n + part
    lead = ranges.arange(x.shape[0] * x.shape[1], device=x.device) * math.prod(sizes)
    return places + lead.reshape([x.shape[0], x.shape[1]] + [1] * len(sizes))


@operator("MaxUnpool", host=("shape",))
def max_unpool(
    x: Any,
    places: Any,
    shape: Any = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    """x at the positions that MaxPool gave, in a tensor of zeros."""
    dims = len(kernel_shape)
    strides, pads = strides or [1] * dims, pads or [0] * (2 * dims)
    natural = [
        (n - 1) * s + k - low - high
        for n, s, k, low, high in zip(
            x.shape[2:], strides, kernel_shape, pads[:dims], pads[dims:], strict=True
        )
    ]
    natural = [*x.shape[:2], *natural]
    flat = creation.zeros(math.prod(natural), dtype=x.dtype, device=x.device)
    made = flat.scatter(0, places.flatten(), x.flatten()).reshape(natural)
    if shape is None:
        return made
    wanted = [int(n) for n in shape]
    return F.pad(
        made, [n for w, m in list(zip(wanted, natural, strict=True))[::-1] for n in (0, w - m)]
    )


@operator("LpPool")
def lp_pool(
    x: Any,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: int = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Any:
    dims, sizes = len(kernel_shape), x.shape[2:]
    strides, dilations = strides or [1] * dims, dilations or [1] * dims
    pairs = _padding(sizes, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode)
    powers = F.pad(f.abs(x) ** p, flat(pairs))
    return _window_sums(powers, kernel_shape, strides, dilations) ** (1 / p)


def _window_sums(
    x: Any, kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> Any:
    """The sums over the windows of the last dimensions, one dimension at a time."""
    first = x.dim() - len(kernel)
    for axis, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True), first):
        count = (x.shape[axis] - d * (k - 1) - 1) // s + 1
        here = (slice(None),) * axis
        x = functools.reduce(
            f.add, (x[(*here, slice(i * d, i * d + (count - 1) * s + 1, s))] for i in range(k))
        )
    return x


@operator("GlobalLpPool")
def global_lp_pool(x: Any, *, p: int = 2) -> Any:
    return f.sum(f.abs(x) ** p, list(range(2, x.dim())), True) ** (1 / p)


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
        return _dilated_average(
            x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode, count_include_pad
        )
    pairs = _padding(sizes, kernel_shape, strides, ones, pads, auto_pad, ceil_mode)
    if count_include_pad and any(low < high for low, high in pairs):
        # Zeros that count become data. Padding by ceil_mode doesn't count.
        counted = padding(sizes, kernel_shape, strides, ones, pads, auto_pad)
        x = record(ops.pad, x, *_low_high(counted, x.dim()))
        pairs = [(0, high - end) for (_, high), (_, end) in zip(pairs, counted, strict=True)]
    windows = tuple(kernel_shape), tuple(strides), tuple(pairs)
    return record(ops.avg_pool, x, *windows, bool(count_include_pad), 0)


def _dilated_average(
    x: Any,
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
    ceil_mode: int,
    include: int,
) -> Any:
    """Sums of windows, divided by how many elements of each count."""
    sizes = x.shape[2:]
    plain = padding(sizes, kernel, strides, dilations, pads, auto_pad)
    pairs = _padding(sizes, kernel, strides, dilations, pads, auto_pad, ceil_mode)
    ones = creation.ones(tuple(sizes), dtype=x.dtype, device=x.device)
    counted = F.pad(ones, flat(plain), value=float(bool(include)))
    rest = [(0, whole - high) for (_, high), (_, whole) in zip(plain, pairs, strict=True)]
    options = kernel, strides, dilations
    total = _window_sums(F.pad(x, flat(pairs)), *options)
    return total / _window_sums(F.pad(counted, flat(rest)), *options)


def _low_high(pairs: Pairs, rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    lead = (0,) * (rank - len(pairs))
    return (*lead, *(p[0] for p in pairs)), (*lead, *(p[1] for p in pairs))


@operator("GlobalAveragePool")
def global_average_pool(x: Any) -> Any:
    return f.mean(x, list(range(2, x.dim())), True)


@operator("GlobalMaxPool")
def global_max_pool(x: Any) -> Any:
    return f.amax(x, list(range(2, x.dim())), True)
