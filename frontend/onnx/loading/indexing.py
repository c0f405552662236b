"""Reads and writes at positions in data. Negative positions count from the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import int64

from ...functions import creation
from ...recording import record
from .api import f
from .table import operator
from .values import Host

_MODES = {"none": "set", "add": "add", "mul": "mul", "max": "max", "min": "min"}


def _positions(index: Any, size: int) -> Any:
    """Positions as int64, counted from the beginning."""
    wide = index.to(int64)
    return f.where(wide < 0, wide + size, wide)


@operator("Gather", either=("index",))
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
    return creation.arange(size, device=device).reshape([-1] + [1] * (rank - 1 - axis))


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


@operator("NonZero")
def non_zero(x: Any) -> Any:
    """NonZero. The values are computed at once, as the result's size depends on them."""
    return f.nonzero(x).t()
