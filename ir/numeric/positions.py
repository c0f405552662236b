"""Positions in a dimension of an array."""

from __future__ import annotations

from typing import Any

import numpy as np

_FEW = 16


def are_inside(positions: Any, size: int) -> bool:
    """Whether all elements of an integer array are in 0 <= p < size."""
    if positions.size == 1:  # a step of generation: a fold of NumPy takes ten times as long
        return bool(0 <= positions.item() < size)
    if positions.size <= _FEW:  # also here
        values = positions.ravel().tolist()
        return not values or (min(values) >= 0 and max(values) < size)
    if 0 in positions.strides:  # an element that stands at many places counts once
        positions = positions[tuple([slice(0, None if s else 1) for s in positions.strides])]
    if positions.dtype == np.int64:  # one fold: a negative one is large without its sign
        return bool(np.maximum.reduce(positions.view(np.uint64), None) < size)
    low, high = np.minimum.reduce(positions, None), np.maximum.reduce(positions, None)
    return bool(low >= 0 and high < size)
