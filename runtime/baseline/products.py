"""Products of matrices by native code from the pack, where it is faster than BLAS."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.llvm import products
from tilewright.ir.dtype import DType, float32, float64
from tilewright.ir.numeric import blas

from . import exact, linking
from .quiet import quietly

if TYPE_CHECKING:
    from tilewright.codegen.llvm.machine import Machine

_WIDE = 64
"""The bytes of registers for which there is code. With shorter ones BLAS is as fast."""
_ROWS, _TERMS, _COLUMNS = 6, 8, 32
"""The least rows, terms of a sum, and columns of a product that native code makes."""
_WORK, _SHARED = 1 << 18, 1 << 21
"""The least terms of all its sums, and from how many on the threads share them. BLAS's own threads
would hold the cores that those of the pool need: they begin later than native code does."""
_FEW = 1 << 10
"""Elements of `a` up to which NumPy multiplies whole numbers."""
_CACHED = 1 << 17
"""The elements of `a` that stay in a cache while all columns meet them."""


def all_code(machine: Machine) -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    if machine.vector_bytes == _WIDE:
        for dtype in (float32, float64):
            for by_columns in (False, True):
                yield _name(dtype, by_columns), products.text(dtype, _WIDE, by_columns)


def _name(dtype: DType, by_columns: bool) -> str:
    return f"product by {'columns' if by_columns else 'rows'} {dtype.name}"


_TYPES = {dtype.np: dtype for dtype in (float32, float64)}


@functools.cache
def _kernel(dtype: np.dtype[Any], by_columns: bool, chunks: int) -> Callable[..., Any] | None:
    """The code of a product of this type, in so many chunks of columns."""
    code = linking.ready(_name(_TYPES[dtype], by_columns)) if dtype in _TYPES else None
    if code is None:
        return None
    return linking.function(code, products.WORDS, len(products.BUFFERS), chunks)


def _is_dot(a: Any, b: Any) -> bool:
    """Whether a @ b is NumPy's `dot`, which calls the same BLAS in half the time."""
    return a.ndim == 2 == b.ndim and a.dtype.char in "fd"


def quiet(a: Any, b: Any) -> Any:
    """a @ b without NumPy's warnings."""
    if _is_dot(a, b) and len(a) * b.size < _WORK:
        return quietly(a.dot, b)
    return quietly(matmul, a, b)


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """a @ b for matrices, or stacks of them, of one type."""
    if a.dtype.kind in "iu" and out is None and a.size >= _FEW:
        found = exact.product(matmul, a, b, a.shape[-1])
        return np.matmul(a, b) if found is None else found
    if a.ndim < 2 or b.ndim < 2 or a.shape[-2] * a.shape[-1] * b.shape[-1] < _WORK:
        return a.dot(b) if out is None and _is_dot(a, b) else np.matmul(a, b, out)
    lead = a.shape[:-2]
    if b.ndim == 2 and lead and out is None and a.flags.c_contiguous:
        return matmul(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    if lead != b.shape[:-2]:
        lead = np.broadcast_shapes(lead, b.shape[:-2])
        a, b = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (a, b))
    if out is None:
        out = np.empty((*lead, a.shape[-2], b.shape[-1]), a.dtype)
    for i in np.ndindex(*lead):
        if not _native(a[i], b[i], out[i]):
            blas.matmul(a[i], b[i], out[i])
    return out


def _threads() -> int:
    from ..native.pool import num_threads

    return num_threads()


def _native(a: Any, b: Any, out: Any) -> bool:
    """Whether native code has written a @ b to `out`."""
    (m, k), n, size = a.shape, b.shape[1], a.itemsize
    if m < _ROWS or k < _TERMS or n < _COLUMNS or out.strides[1] != size or out.strides[0] % size:
        return False
    by_columns = b.strides[1] != size
    if (by_columns and b.strides[0] != size) or any([s % size for s in (*a.strides, *b.strides)]):
        return False
    chunks = _threads() if m * k * n >= _SHARED else 1
    run = _kernel(a.dtype, by_columns, chunks)
    if run is None:
        return False
    width = products.columns(_TYPES[a.dtype], _WIDE)
    each = -(-n // (chunks * width)) * width
    row, column, line = (s // size for s in (*a.strides, b.strides[by_columns]))
    rows = max(_CACHED // k, 8 * _ROWS)
    for i in range(0, m, rows):
        part = a[i : i + rows]
        run((out[i:], part, b), (len(part), n, k, out.strides[0] // size, row, column, line, each))
    return True
