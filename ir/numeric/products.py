"""Products of complex numbers that no kernel of real numbers computes well: many small matrices,
and products that run along an axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .batches import by_parts

running: Callable[[Any, Any], None] | None = None
"""The native loop, which the runtime tells (`runtime/native/routines.py`): the products along the
rows of z[m, n], to an array like it."""


def small_products(a: Any, b: Any, out: Any = None) -> tuple[Any]:
    """a @ b for two batches alike, by the BLAS behind NumPy. out: memory for the result."""
    found = np.empty((*a.shape[:-1], b.shape[-1]), a.dtype) if out is None else out
    # Each part writes to its place, and has nothing to give.
    by_parts(lambda a, b, c: np.matmul(a, b, out=c)[..., :0], a, b, found)
    return (found,)


def running_product(z: Any, axis: int, out: Any = None) -> tuple[Any]:
    """The product of each element and all before it along an axis. out: memory for the result."""
    if running is None or axis != z.ndim - 1 or not z.size:
        return (np.cumprod(z, axis),)
    found = np.empty_like(z) if out is None else out
    rows = z.reshape(-1, z.shape[-1])

    def part(given: Any, target: Any) -> Any:
        assert running is not None
        running(given[:, 0], target[:, 0])
        return target[..., :0]

    by_parts(part, rows[:, None], found.reshape(rows.shape)[:, None])
    return (found,)
