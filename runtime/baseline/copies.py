"""Copies in row-major order, by native code where NumPy goes element by element."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import copies

from . import linking

_FROM = 1 << 12
"""Elements from which native code is faster."""
_SIZES = (1, 2, 4, 8)
"""The bytes of elements that it moves."""


def in_order(x: Any) -> Any:
    """An array or number as an array, copied if it isn't contiguous."""
    x = np.asarray(x)
    return x if x.flags.c_contiguous else copied(x)


def copied(x: Any) -> Any:
    """A contiguous copy of an array."""
    if x.size < _FROM or x.itemsize not in _SIZES or 0 in x.strides:
        return np.array(x, order="C")
    strides = [s // x.itemsize for s in x.strides]
    sizes, (steps,) = merged(x.shape, [strides])
    run = _native(x.itemsize)
    rank = len(sizes)
    # NumPy copies rows that lie in memory as such, and what is turned in small planes, as fast.
    is_slow = rank and (steps[-1] == -1 or (rank > 1 and abs(steps[-2]) == 1))
    if (
        run is None
        or not is_slow
        or rank > copies.OUTER + 2
        or any(s % x.itemsize for s in x.strides)
    ):
        return np.array(x, order="C")
    missing = copies.OUTER + 2 - rank
    sizes, steps = [1] * missing + sizes, [0] * missing + steps
    out = np.empty(x.shape, x.dtype)
    run((out, x), (*sizes[-2:], *steps[-2:], *sizes[:-2], *steps[:-2]))
    return out


def merged(
    shape: Sequence[int], rows: Sequence[Sequence[int]]
) -> tuple[list[int], list[list[int]]]:
    """The sizes and strides of fewer dimensions: neighbours that are walked as one are merged."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in rows]
    for i in range(len(shape) - 1, -1, -1):
        if shape[i] == 1:
            continue
        if sizes and all(row[i] == out[0] * sizes[0] for row, out in zip(rows, merged)):
            sizes[0] *= shape[i]
            continue
        sizes.insert(0, shape[i])
        for row, out in zip(rows, merged):
            out.insert(0, row[i])
    return sizes, merged


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for itemsize in _SIZES:
        yield _name(itemsize), copies.text(itemsize)


def _name(itemsize: int) -> str:
    return f"copies of {itemsize} bytes"


@functools.cache
def _native(itemsize: int) -> Callable[..., Any] | None:
    code = linking.linked(_name(itemsize), lambda: copies.text(itemsize))
    return None if code is None else linking.function(code, copies.WORDS, 2)
