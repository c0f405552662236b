"""Dropout: elements or whole channels set to zero at random."""

from __future__ import annotations

import math
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.ops.random import keep_scale

from ...random import draw
from ...recording import record_into


def _check(p: float) -> float:
    if not 0.0 <= p <= 1.0:
        raise ValueError(
            f"dropout probability has to be between 0 and 1, but got {p}{at_user_line()}"
        )
    return float(p)


def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    """In training each element is zero with probability `p`, else x / (1 - p)."""
    p = _check(p)
    if not training or p == 0.0:
        return input
    return record_into(inplace, ops.dropout, input, *draw(), p)


def _feature_dropout(x: Node, seed: Node, offset: Node, p: float, dims: int) -> Node:
    # Without a batch dimension the channels come first.
    lead = x.rank - dims
    mask = (*x.shape[:lead], *(1 for _ in range(dims)))
    return x * keep_scale(seed, offset, mask, x.dtype, p)


def _features(dims: int) -> Any:
    def function(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        p = _check(p)
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(
                f"dropout{dims}d: Expected {dims + 1}D or {dims + 2}D input, but received a "
                f"{input.dim()}D input{at_user_line()}"
            )
        if not training or p == 0.0:
            return input
        return record_into(inplace, _feature_dropout, input, *draw(), p, dims)

    function.__name__ = function.__qualname__ = f"dropout{dims}d"
    function.__doc__ = "In training each channel is zero with probability `p`, else x / (1 - p)."
    return function


dropout1d, dropout2d, dropout3d = _features(1), _features(2), _features(3)


def _alpha_dropout(x: Node, seed: Node, offset: Node, p: float) -> Node:
    low = -1.7580993408473766  # what selu tends to far below zero
    kept = ops.uniform(seed, offset, x.shape, float32)
    kept = kept >= ops.full_like(kept, p)
    a = 1 / math.sqrt((1 - p) * (1 + p * low * low)) if p < 1 else 0.0
    b = -a * low * p
    return ops.where(kept, x, ops.full_like(x, low)) * a + b


def alpha_dropout(input: Any, p: float = 0.5, training: bool = False, inplace: bool = False) -> Any:
    """Dropout that keeps zero mean and unit variance, for selu networks."""
    p = _check(p)
    if not training or p == 0.0:
        return input
    return record_into(inplace, _alpha_dropout, input, *draw(), p)
