"""Memory that is handed to NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.dtype import is_added

from ..recording import views


class Window:
    """Memory handed to NumPy. Its arrays keep this object alive, so its end shows that they are
    gone."""

    def __init__(
        self, array: np.ndarray, start: int | None = None, shape: Any = None, strides: Any = None
    ):
        # The array interface has no names for the dtypes of ml_dtypes.
        plain = array.view(f"u{array.itemsize}") if is_added(array.dtype) else array
        interface = dict(plain.__array_interface__)
        interface["data"] = (interface["data"][0] if start is None else start, False)
        interface["shape"] = plain.shape if shape is None else tuple(shape)
        interface["strides"] = plain.strides if strides is None else strides
        self.__array_interface__ = interface
        self._memory = array


def flat_memory(array: np.ndarray) -> np.ndarray:
    """The memory from the first element of an array to its last, as an array of one axis."""
    size = views.span(array.shape, [s // array.itemsize for s in array.strides])
    start = array.__array_interface__["data"][0]
    return np.asarray(Window(array, start, (size,), (array.itemsize,))).view(array.dtype)
