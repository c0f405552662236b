"""Rows added to rows of a table, as in the gradient of an embedding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import rows
from tilewright.ir.dtype import DType, float32, float64

from . import maps

_DTYPES = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}


def add(table: Any, values: Any, at: Any) -> None:
    """table[at[i]] += values[i], in the order of i.

    table: [size, width], contiguous. values: [rows, width], of its dtype, float32 or float64.
    at: int64 [rows], in range.
    """
    native = _native(_DTYPES[table.dtype])
    if native is not None:
        arrays = table, np.ascontiguousarray(values), np.ascontiguousarray(at)
        native(arrays, values.shape)
        return
    targets = list(table)
    for i, row in zip(at.tolist(), values, strict=True):
        np.add(targets[i], row, targets[i])


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        yield _name(dtype), rows.text(dtype)


def _name(dtype: DType) -> str:
    return f"rows added {dtype.name}"


@functools.cache
def _native(dtype: DType) -> Callable[..., Any] | None:
    code = maps.linked(_name(dtype), lambda: rows.text(dtype))
    return None if code is None else maps.function(code, rows.WORDS, len(rows.BUFFERS))
