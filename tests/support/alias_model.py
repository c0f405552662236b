"""Tensors in NumPy, op by op: real views give the aliasing, tangents the derivatives.

An `Array` has a value and, for each of a few directions, a tangent: the change of the value with
the leaf of that direction. In-place writes and views act on both alike, so the derivative of any
result is known without a graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

DIRECTIONS = 3


class Array:
    """value: an array. tangent: one array for each direction. All may be views of other arrays."""

    def __init__(self, value: np.ndarray, tangent: list[np.ndarray] | None = None):
        self.value = value
        zero = [np.zeros(value.shape) for _ in range(DIRECTIONS)]
        self.tangent = zero if tangent is None else tangent

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def view(self, function: Callable[[np.ndarray], np.ndarray], recorded: bool) -> Array:
        """A view. Without grad mode it has no history, even after writes to it."""
        value = function(self.value)
        assert np.shares_memory(value, self.value) or not value.size
        if not recorded:
            return Array(value)
        return Array(value, [function(lane) for lane in self.tangent])

    def detach(self) -> Array:
        return Array(self.value)

    def write(self, new: Array, recorded: bool) -> None:
        """Overwrite in place. Without grad mode the derivative stays as it was."""
        value, tangent = np.array(new.value), [np.array(lane) for lane in new.tangent]
        self.value[...] = value
        if recorded:
            for k in range(DIRECTIONS):
                self.tangent[k][...] = tangent[k]


def elementwise(
    function: Callable[..., Any], slopes: Callable[..., tuple[Any, ...]], recorded: bool, *args: Any
) -> Array:
    """function(*values); slopes(*values) returns its derivative by each argument."""
    values = [a.value if isinstance(a, Array) else a for a in args]
    value = np.asarray(function(*values))
    out = Array(np.array(value))
    if recorded:
        for a, slope in zip(args, slopes(*values), strict=True):
            if isinstance(a, Array):
                for k in range(DIRECTIONS):
                    out.tangent[k] += slope * a.tangent[k]
    return out


def linear(function: Callable[[np.ndarray], np.ndarray], recorded: bool, a: Array) -> Array:
    """A linear function of one array, as a copy."""
    out = Array(np.array(function(a.value)))
    if recorded:
        for k in range(DIRECTIONS):
            out.tangent[k] = np.array(function(a.tangent[k]))
    return out


def product(recorded: bool, a: Array, b: Array) -> Array:
    """The matrix product."""
    out = Array(a.value @ b.value)
    if recorded:
        for k in range(DIRECTIONS):
            out.tangent[k] = a.tangent[k] @ b.value + a.value @ b.tangent[k]
    return out
