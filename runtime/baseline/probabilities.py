"""The forms of softmax and its logarithm, by native code for any sizes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import probabilities
from tilewright.ir.dtype import DType, float32, float64

from . import copies, linking
from .quiet import bare

_PARALLEL_FROM = 1 << 16
"""Elements from which all cores share the lines."""


def form_of(kind: str, dtype: DType, axis: int) -> Callable[[Any], Any] | None:
    """The form along an axis, for arrays of any size; None if NumPy computes it.

    kind: one of `codegen.llvm.probabilities.FORMS`. dtype: float32 or float64."""
    run, np_dtype, empty, prod = _native(kind, dtype, 1), dtype.np, np.empty, math.prod
    if run is None:
        return None

    def probabilities(x: Any) -> Any:
        shape, size = x.shape or (1,), x.size
        out = empty(x.shape, np_dtype)
        if not size:
            return out
        if x.__class__ is not np.ndarray or not x.flags.c_contiguous:
            x = copies.copied(np.asarray(x))  # NumPy's scalars have no memory to read
        length = shape[axis]
        inner = prod(shape[axis + 1 :]) if axis + 1 < len(shape) else 1
        outer = size // (length * inner)
        if size < _PARALLEL_FROM:
            run((out, x), (outer, length, inner, outer))
        else:
            shared, chunks = _shared(kind, dtype)
            shared((out, x), (outer, length, inner, -(-outer // chunks)))
        return out

    return bare(probabilities)


def _shared(kind: str, dtype: DType) -> tuple[Callable[..., Any], int]:
    """The function that all cores share, and the number of its chunks."""
    from ..native.pool import num_threads

    chunks = 2 * num_threads()
    run = _native(kind, dtype, chunks)
    assert run is not None
    return run, chunks


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for kind, dtype in itertools.product(probabilities.FORMS, (float32, float64)):
        yield _name(kind, dtype), probabilities.text(dtype, kind)


def _name(kind: str, dtype: DType) -> str:
    return f"{kind} of lines {dtype.name}"


@functools.cache
def _native(kind: str, dtype: DType, chunks: int) -> Callable[..., Any] | None:
    code = linking.linked(_name(kind, dtype), lambda: probabilities.text(dtype, kind))
    if code is None:
        return None
    return linking.function(code, probabilities.WORDS, len(probabilities.BUFFERS), chunks)
