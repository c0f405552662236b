"""Products of matrices of which the first one has few rows, by native code from the pack. BLAS
copies the second one first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.llvm import products
from tilewright.ir.dtype import DType, float32, float64

from . import maps

if TYPE_CHECKING:
    from tilewright.codegen.llvm.machine import Machine

Product = Callable[..., Any]
"""product(a[batch, m, k], b[batch, k, n], out=None) -> out[batch, m, n], as np.matmul."""

_WIDE = 64
"""The bytes of registers for which there is code. With shorter ones BLAS is as fast."""
_ROWS, _TERMS, _WORK = 4, 8, 1 << 16
"""The least rows, terms of a sum and terms of all sums of a product that native code makes."""


def all_code(machine: Machine) -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    if machine.vector_bytes == _WIDE:
        for dtype in (float32, float64):
            yield _name(dtype), products.text(dtype, _WIDE)


def _name(dtype: DType) -> str:
    return f"product of few rows {dtype.name}"


@functools.cache
def of(dtype: DType) -> Product:
    """The product of matrices of float32 or float64."""
    code = maps.ready(_name(dtype))
    if code is None:
        return np.matmul
    from ..native.pool import num_threads

    chunks, width = 2 * num_threads() if num_threads() > 1 else 1, products.columns(dtype, _WIDE)
    run = maps.function(code, products.WORDS, len(products.BUFFERS), chunks)
    size = dtype.itemsize

    def product(a: Any, b: Any, out: Any = None) -> Any:
        (count, m, k), n = a.shape, b.shape[-1]
        if out is None:
            out = np.empty((count, m, n), dtype.np)
        fits = m >= _ROWS and k >= _TERMS and m * n * k >= _WORK
        if not fits or any([x.strides[-1] != size or x.strides[-2] % size for x in (a, b, out)]):
            return np.matmul(a, b, out)
        each = -(-n // (chunks * width)) * width
        rows = [x.strides[1] // size for x in (out, a, b)]
        for matrices in zip(out, a, b, strict=True):
            run(matrices, (m, n, k, *rows, each))
        return out

    return product
