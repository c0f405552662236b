"""The BLAS that NumPy's products call: its threads, and products of matrices."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

_SETTERS = (
    "scipy_openblas_set_num_threads64_",  # NumPy's own wheels since 1.26
    "openblas_set_num_threads64_",  # those before
    "openblas_set_num_threads",  # distributions
    "MKL_Set_Num_Threads",
)


def function(*names: str) -> Any:
    """The first of these functions that the libraries behind NumPy have, or None."""
    # A name is looked up in the extension and in the libraries that it was linked with.
    libraries = ctypes.CDLL(np.linalg._umath_linalg.__file__)
    return next((f for name in names if (f := getattr(libraries, name, None)) is not None), None)


def set_threads(count: int) -> bool:
    """Let a product take so many threads. False if the library has no function for it."""
    setter = function(*_SETTERS)
    if setter is not None:
        setter(ctypes.c_int(count))
    return setter is not None


def matmul(a: Any, b: Any, out: Any = None) -> Any:
    """a @ b. Two or three rows are multiplied with a large matrix one by one: BLAS takes more than
    twice as long for them together."""
    if a.ndim != 2 or not 1 < len(a) < 4 or b.ndim != 2 or b.size < _LARGE:
        return np.matmul(a, b, out)
    if out is None:
        out = np.empty((len(a), b.shape[1]), np.result_type(a, b))
    for row, place in zip(a, out):
        np.matmul(row, b, place)
    return out


_LARGE = 1 << 14
