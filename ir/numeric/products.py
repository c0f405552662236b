"""Products of complex numbers that no kernel of real numbers computes well: many small matrices,
and products that run along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..dtype import DType, complex64, complex128
from .batches import by_parts

running: Callable[[Any, Any], None] | None = None
"""The native loop, which the runtime tells (`runtime/native/routines.py`): the products along the
rows of z[m, n], to an array like it."""
total: Callable[[Any, Any], None] | None = None
"""Likewise the products of whole rows, to an array [m]."""
_LONG, _MANY = 32, 1 << 11
"""The shortest rows, and the fewest numbers, whose products a loop computes: others are few
multiplications, which fuse with what is around them, and take less than the loop's call."""
_PIECE = 1 << 11
"""The numbers of a long row that are multiplied by themselves, so that threads may share it, and
few products become so small that processors take a hundred times as long for them."""
_SIDE_BY_SIDE = 64
_WORTH = 1 << 16
"""The fewest numbers that threads share."""


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


def are_rows(shape: Sequence[int], dtype: DType, axes: Sequence[int]) -> bool:
    """Whether a product over `axes` runs along long rows of complex numbers that NumPy knows."""
    last = sorted(axes) == list(range(len(shape) - len(axes), len(shape)))
    long = math.prod(shape[a] for a in axes) >= _LONG
    return last and long and math.prod(shape) >= _MANY and dtype in (complex64, complex128)


def total_product(z: Any, out: Any = None) -> tuple[Any]:
    """The product along the last axis, which goes. out: memory for the result."""
    if total is None or not z.size:
        return (_by_numpy(z),)
    found = np.empty(z.shape[:-1], z.dtype) if out is None else out
    rows = np.ascontiguousarray(z).reshape(-1, z.shape[-1])
    if rows.size < _WORTH and rows.shape[1] < 2 * _PIECE and found.flags.c_contiguous:
        total(rows, found)
        return (found,)
    while rows.shape[1] >= 2 * _PIECE:
        count = rows.shape[1] // _PIECE
        pieces = np.ascontiguousarray(rows[:, : count * _PIECE]).reshape(-1, _PIECE)
        whole = _totals(pieces).reshape(len(rows), count)
        rows = np.concatenate([whole, rows[:, count * _PIECE :]], 1)
    found[...] = _totals(rows).reshape(found.shape)
    return (found,)


def _totals(rows: Any) -> Any:
    def part(given: Any) -> Any:
        assert total is not None
        made = np.empty(len(given), given.dtype)
        total(given[:, 0], made)
        return made[:, None, None]

    whole = rows[:, None]
    return (by_parts(part, whole) if rows.size >= _WORTH else part(whole)).reshape(-1)


def _by_numpy(z: Any) -> Any:
    """NumPy multiplies the numbers of a row one after another, and rows of them by vectors."""
    whole = z.shape[-1] // _SIDE_BY_SIDE * _SIDE_BY_SIDE
    if whole > _SIDE_BY_SIDE:
        side_by_side = z[..., :whole].reshape(*z.shape[:-1], -1, _SIDE_BY_SIDE)
        z = np.concatenate([np.multiply.reduce(side_by_side, -2), z[..., whole:]], -1)
    return np.multiply.reduce(z, -1)
