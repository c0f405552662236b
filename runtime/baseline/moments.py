"""Means and deviations of rows, and rows normalized by them, by native code for any sizes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import moments
from tilewright.ir.dtype import DType, float32, float64

from . import copies, linking

_PARALLEL_FROM = 1 << 16
"""Elements from which all cores share the rows."""
_WORDS = {"moments": moments.MOMENTS, **{f"normal {n}": moments.normalized(n) for n in range(3)}}


def has_code(dtype: DType) -> bool:
    """Whether there is native code for rows of this dtype."""
    return dtype in (float32, float64) and _native("moments", dtype, 1) is not None


def of_rows(x: Any, length: int, eps: Any) -> tuple[Any, Any]:
    """(mean, deviation) of rows of an array that isn't empty, as vectors. eps: a float64."""
    rows = x.size // length
    mean, scale = np.empty(rows, x.dtype), np.empty(rows, x.dtype)
    x = copies.in_order(x)
    _run("moments", x, (mean, scale, x, eps), rows, length)
    return mean, scale


def normalized(x: Any, length: int, found: tuple[Any, Any], parameters: Sequence[Any]) -> Any:
    """Rows of an array, by what `of_rows` has found of them, and by a weight and a bias for the
    elements of a row, or neither."""
    x = copies.in_order(x)
    out = np.empty(x.shape, x.dtype)
    given = [copies.in_order(p) for p in parameters]
    _run(f"normal {len(given)}", x, (out, x, *found, *given), x.size // length, length)
    return out


def _run(name: str, x: Any, buffers: tuple[Any, ...], rows: int, length: int) -> None:
    dtype = float32 if x.dtype == np.float32 else float64
    chunks = 1
    if x.size >= _PARALLEL_FROM:
        from ..native.pool import num_threads

        chunks = 2 * num_threads()
    run = _native(name, dtype, chunks)
    assert run is not None
    run(buffers, (rows, length, -(-rows // chunks)))


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        for name in _WORDS:
            yield _name(name, dtype), _text(name, dtype)


def _name(name: str, dtype: DType) -> str:
    return f"{name} of rows {dtype.name}"


def _text(name: str, dtype: DType) -> str:
    if name == "moments":
        return moments.moments(dtype)
    return moments.normal(dtype, int(name.removeprefix("normal ")))


@functools.cache
def _native(name: str, dtype: DType, chunks: int) -> Callable[..., Any] | None:
    code = linking.linked(_name(name, dtype), lambda: _text(name, dtype))
    words = _WORDS[name]
    return None if code is None else linking.function(code, words, moments.buffers(words), chunks)
