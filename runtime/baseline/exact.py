"""Products of whole numbers as products of floats, where these are exact.

BLAS knows floats alone, and NumPy multiplies whole numbers one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

_EXACT = {
    np.dtype(np.float32): (1 << 24, np.dtype(np.int32)),
    np.dtype(np.float64): (1 << 53, np.dtype(np.int64)),
}
"""Up to where all whole numbers are floats, and a dtype that holds these."""


def product(multiply: Callable[..., Any], a: Any, b: Any, terms: int) -> Any:
    """multiply(a, b) of whole numbers by that of floats; None if a sum of `terms` products of
    elements may be too large for it. multiply: of arrays of float32, and of float64."""
    if not a.size or not b.size:
        return None
    largest = _most(a.dtype) ** 2 * terms
    if largest > _EXACT[np.dtype(np.float32)][0]:
        largest = _size(a) * _size(b) * terms
    for kind, (most, whole) in _EXACT.items():
        if largest <= most:
            found = multiply(a.astype(kind), b.astype(kind))
            # A float that the result's dtype doesn't hold has no defined bits there.
            return found.astype(whole).astype(a.dtype, copy=False)
    return None


def _most(dtype: np.dtype[Any]) -> int:
    """The size of the largest number of a dtype."""
    return 1 << (8 * dtype.itemsize - (dtype.kind == "i"))


def _size(x: Any) -> int:
    """The size of the largest element."""
    return max(int(x.max()), -int(x.min()))
