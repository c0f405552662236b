"""The values of a running graph: tensors, and arrays known on the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation
from ...recording import Handle


class Host:
    """An array that is known while the graph is recorded, such as a shape. `tensor` gives it as a
    tensor, which is made once on each device unless all elements are equal."""

    def __init__(self, array: Any):
        self.array = np.asarray(array)
        self._tensors: dict[Any, Any] = {}
        self._alike: bool | None = None  # whether all elements are equal, None if unknown

    def tensor(self, device: Any) -> Any:
        first = self.array.reshape(-1)[:1]
        if self._alike is None:
            self._alike = first.size == 1 and self.array.tobytes() == first.tobytes() * (
                self.array.size
            )
        if self._alike:
            # A constant of the graph lets kernels be simplified.
            dtype = _dtype_of_array(self.array)
            return creation.full(self.array.shape, first.item(), dtype=dtype, device=device)
        found = self._tensors.get(device)
        if found is None:
            found = self._tensors[device] = tensor_of(self.array, device)
        return found


Value = Any
"""A Host, a Tensor, or None for a missing input."""


def tensor_of(array: np.ndarray, device: Any = None) -> Any:
    """A tensor with a copy of the array. TypeError for an unsupported dtype."""
    return creation.tensor(array, dtype=_dtype_of_array(array), device=device)


def _dtype_of_array(array: np.ndarray) -> Any:
    try:
        return dtypes.from_numpy(array.dtype)
    except TypeError:
        raise TypeError(f"there are no tensors of {array.dtype}") from None


def array_of(value: Value) -> np.ndarray:
    """The value as an array. A tensor is computed for that."""
    if isinstance(value, Host):
        return value.array
    assert isinstance(value, Handle)
    tensor: Any = value
    return np.asarray(tensor.detach().cpu())


def dtype_of(code: int) -> Any:
    """The dtype with an ONNX type number."""
    import onnx

    name = onnx.TensorProto.DataType.Name(code)
    try:
        return dtypes.named(_NAMES.get(name, name.lower()))
    except KeyError:
        raise TypeError(f"there are no tensors of ONNX's type {name}") from None


_NAMES = {"FLOAT": "float32", "DOUBLE": "float64"}
