"""Factors of batches of small matrices by native code (`codegen/llvm/elimination.py`)."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.codegen.llvm.elimination import emit, lanes_of

from . import host, jit

_KINDS = {"f": "float", "d": "double"}
LARGEST = 24
"""The rows of the largest matrices: LAPACK is as fast from there on."""


def serves(a: Any) -> bool:
    """Whether `lu` factors a[..., m, n]: small real matrices, a vector of them at least."""
    m, n = a.shape[-2:]
    fits = 1 <= n <= m <= LARGEST and np.dtype(a.dtype).char in _KINDS
    return fits and a.size // (m * n) >= lanes_of(host.machine(), a.dtype.itemsize)


def lu(a: Any) -> tuple[Any, Any, Any]:
    """(LU, int32 pivots, int32 info), as `elimination.lu` of `ir/numeric`."""
    *batch, m, n = a.shape
    a = np.ascontiguousarray(a)
    count = a.size // (m * n)
    out = np.empty_like(a)
    pivots, info = np.empty((*batch, n), np.int32), np.empty(batch, np.int32)
    width = host.machine().vector_bytes
    memory = np.empty((m * n + 1) * width, np.uint8)
    start = memory.ctypes.data
    arrays = (x.ctypes.data for x in (a, out, pivots, info))
    _kernel(np.dtype(a.dtype).char)[0](*arrays, start + -start % width, m, n, count)
    return out, pivots, info


@functools.cache
def _kernel(char: str) -> tuple[Callable[..., None], Any]:
    linked = jit.link(emit(_KINDS[char], host.machine()), "kernel")
    made = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 5, *[ctypes.c_int64] * 3)
    return made(linked.addresses["kernel"]), linked
