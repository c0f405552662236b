"""Numerical evaluation in float64, whatever the dtype of the argument."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def in_float64(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` computed in float64, without floating point warnings; keeps the float dtype."""

    @functools.wraps(function)
    def wide(*args: Any) -> Any:
        arrays = [np.asarray(a) for a in args]
        with np.errstate(all="ignore"):
            result = function(*(a.astype(np.float64) for a in arrays))
            return np.asarray(result).astype(arrays[0].dtype)

    return wide


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """Horner's rule, highest power first."""
    total = np.full_like(x, coefficients[0])
    for c in coefficients[1:]:
        total = total * x + c
    return total
