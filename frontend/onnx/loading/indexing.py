"""Reads and writes at positions in data. Negative positions count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import int64

from ...functions import creation, ranges
from ...recording import record
from .api import f
from .table import operator
from .values import Host

_MODES = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _positions(index: Any, size: int) -> Any:
    """Positions as int64, counted from the beginning."""
    wide = index.to(int64)
    return f.where(wide < 0, wide + size, wide)


@operator("Gather", either=("index",), moves=True)
def gather(x: Any, index: Any, *, axis: int = 0) -> Any:
    axis %= x.dim()
    size = x.shape[axis]
    if not isinstance(index, Host):
        return record(ops.gather, x, _positions(index, size), axis)
    places = index.array
    if places.size and not -size <= places.min() <= places.max() < size:
        raise IndexError(f"an index is out of range for the dimension {axis} of {list(x.shape)}")
    if places.ndim == 0:
        return f.select(x, axis, int(places))
    if places.size and places.min() < 0:
        index = Host(np.where(places < 0, places + size, places))
    return record(ops.gather, x, index.tensor(x.device).to(int64), axis)


@operator("GatherElements")
def gather_elements(x: Any, index: Any, *, axis: int = 0) -> Any:
    return f.gather(x, axis, _positions(index, x.shape[axis]))


@operator("GatherND")
def gather_nd(x: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    return record(ops.gather, x, *_tuples(x, indices, batch_dims), 0)


@operator("ScatterND")
def scatter_nd(x: Any, indices: Any, updates: Any, *, reduction: str = "none") -> Any:
    return record(ops.scatter, x, updates, *_tuples(x, indices), 0, _MODES[reduction])


@operator("ScatterElements", "Scatter")
def scatter_elements(
    x: Any, index: Any, updates: Any, *, axis: int = 0, reduction: str = "none"
) -> Any:
    axis %= x.dim()
    places = [
        _positions(index, x.shape[i]) if i == axis else _line(n, i, x.dim(), x.device)
        for i, n in enumerate(index.shape)
    ]
    return record(ops.scatter, x, updates, *places, 0, _MODES[reduction])


def _line(size: int, axis: int, rank: int, device: Any) -> Any:
    """0, 1, … along `axis`."""
    return ranges.arange(size, device=device).reshape([-1] + [1] * (rank - 1 - axis))


def _tuples(x: Any, indices: Any, batch_dims: int = 0) -> Sequence[Any]:
    """The positions in each of the first dimensions, from the last dimension of `indices`."""
    rank = indices.dim() - 1
    batch = [_line(indices.shape[i], i, rank, x.device) for i in range(batch_dims)]
    parts = [f.select(indices, -1, i) for i in range(indices.shape[-1])]
    return batch + [_positions(p, x.shape[i]) for i, p in enumerate(parts, batch_dims)]


@operator("OneHot", host=("depth",))
def one_hot(index: Any, depth: Any, values: Any, *, axis: int = -1) -> Any:
    size = int(depth.item())
    axis %= index.dim() + 1
    line = _line(size, axis, index.dim() + 1, index.device)
    hot = f.unsqueeze(_positions(index, size), axis) == line
    return f.where(hot, values[1], values[0])


@operator("Compress", moves=True)
def compress(x: Any, condition: Any, *, axis: int | None = None) -> Any:
    """The elements, or the slices along `axis`, whose condition is true. Their number depends on
    values, so they are counted at once."""
    flat = x.flatten() if axis is None else x
    places = f.nonzero(condition).reshape(-1)
    return f.index_select(flat, axis or 0, places)


@operator("Unique")
def unique(x: Any, *, axis: int | None = None, sorted: int = 1) -> Any:
    """(the different elements or slices, their first places, the places of all in these, counts),
    computed at once."""
    flat = x.flatten() if axis is None else x
    dim = 0 if axis is None else axis % x.dim()
    values, inverse, counts = f.unique(flat, return_inverse=True, return_counts=True, dim=dim)
    size = flat.shape[dim]
    line = ranges.arange(size, device=x.device)
    first = creation.full((counts.shape[0],), size, dtype=int64, device=x.device)
    first = first.scatter_reduce(0, inverse, line, "amin")
    if not sorted:  # in the order of the first places
        order = f.argsort(first)
        rank = f.argsort(order)
        values, first, counts = values.index_select(dim, order), first[order], counts[order]
        inverse = rank[inverse]
    return values, first, inverse, counts


@operator("ReverseSequence")
def reverse_sequence(x: Any, lengths: Any, *, batch_axis: int = 1, time_axis: int = 0) -> Any:
    """Turn the first elements of each example around."""
    time = ranges.arange(x.shape[time_axis], device=x.device)
    lengths = lengths.reshape(-1, 1)
    place = f.where(time < lengths, lengths - 1 - time, time)  # [n, time]
    place = place if batch_axis < time_axis else place.t()
    index = place.reshape([*place.shape] + [1] * (x.dim() - 2)).expand(x.shape)
    return f.gather(x, time_axis, index)


@operator("NonZero")
def non_zero(x: Any) -> Any:
    """NonZero. The values are computed at once, as the result's size depends on them."""
    return f.nonzero(x).t()
