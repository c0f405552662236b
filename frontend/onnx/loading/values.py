"""The values of a running graph: tensors, numbers of few bits, and arrays known on the host."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from tilewright.ir import dtype as dtypes

from ...functions import creation, from_data
from ...recording import Handle

LARGEST_HOST = 4096
"""The most elements of an integer array that counts as a shape or position."""


class Host:
    """An array that is known while the graph is recorded, such as a shape. `tensor` gives it as a
    tensor, which is made once on each device unless all elements are equal."""

    def __init__(self, array: Any):
        self.array = np.asarray(array)
        self._tensors: dict[Any, Any] = {}
        self._alike: bool | None = None  # whether all elements are equal, None if unknown

    def tensor(self, device: Any) -> Any:
        """The array as a Tensor, or as a Narrow."""
        first = self.array.reshape(-1)[:1]
        if self.array.dtype in NARROW:
            return narrow_of(self.array, device)
        if self._alike is None:
            self._alike = first.size == 1 and self.array.tobytes() == first.tobytes() * (
                self.array.size
            )
        if self._alike:
            # A constant of the graph lets kernels be simplified.
            dtype = _dtype_of_array(self.array)
            if not dtype.is_complex:
                return creation.full(self.array.shape, first.item(), dtype=dtype, device=device)
        found = self._tensors.get(device)
        if found is None:
            found = self._tensors[device] = tensor_of(self.array, device)
        return found


@dataclass(frozen=True)
class Narrow:
    """Numbers of a dtype that has no tensors, such as int4, in a tensor of a wider one.

    carrier: int8, uint8 or float32. All its elements are numbers of `dtype`, a NumPy dtype.
    """

    carrier: Any
    dtype: np.dtype[Any]

    @property
    def shape(self) -> Any:
        return self.carrier.shape

    @property
    def device(self) -> Any:
        return self.carrier.device

    def dim(self) -> int:
        return int(self.carrier.dim())

    def map(self, move: Callable[[Any], Any]) -> Narrow:
        """The same numbers in other places."""
        return Narrow(move(self.carrier), self.dtype)

    def array(self) -> np.ndarray:
        return np.asarray(self.carrier.detach().cpu()).astype(self.dtype)


Value = Any
"""A Host, a Tensor, a Narrow, a list of values (a sequence), or None: a missing input, or an empty
optional. Classifiers of ai.onnx.ml give dicts, too."""


NARROW: dict[np.dtype[Any], Any] = {
    np.dtype(getattr(ml_dtypes, name)): carrier
    for name, carrier in {
        "int2": dtypes.int8, "int4": dtypes.int8, "uint2": dtypes.uint8, "uint4": dtypes.uint8,
        "float4_e2m1fn": dtypes.float32, "float6_e2m3fn": dtypes.float32,
        "float6_e3m2fn": dtypes.float32, "float8_e4m3fnuz": dtypes.float32,
        "float8_e5m2fnuz": dtypes.float32, "float8_e8m0fnu": dtypes.float32,
    }.items()
    if hasattr(ml_dtypes, name)  # older versions lack some
}  # fmt: skip
"""The dtypes without tensors, and those that carry them."""

_NAMES = {
    "FLOAT": "float32", "DOUBLE": "float64", "FLOAT8E4M3FN": "float8_e4m3fn",
    "FLOAT8E5M2": "float8_e5m2", "FLOAT8E4M3FNUZ": "float8_e4m3fnuz",
    "FLOAT8E5M2FNUZ": "float8_e5m2fnuz", "FLOAT8E8M0": "float8_e8m0fnu",
    "FLOAT4E2M1": "float4_e2m1fn", "FLOAT6E2M3": "float6_e2m3fn", "FLOAT6E3M2": "float6_e3m2fn",
}  # fmt: skip
"""ONNX's names for dtypes, where they aren't ours in capitals."""


@functools.cache
def element_of(code: int) -> Any:
    """What an ONNX type number stands for: a dtype of tensors, a NumPy dtype of NARROW, or str."""
    import onnx

    try:
        name = onnx.TensorProto.DataType.Name(code)
    except ValueError:
        raise TypeError(f"ONNX has no type with the number {code}") from None
    if name == "STRING":
        return str
    ours = _NAMES.get(name, name.lower())
    for narrow in NARROW:
        if narrow.name == ours:
            return narrow
    try:
        return dtypes.named(ours)
    except KeyError:
        raise TypeError(f"there are no tensors of ONNX's type {name}") from None


def dtype_of(code: int) -> Any:
    """The dtype of tensors with an ONNX type number."""
    found = element_of(code)
    if not isinstance(found, dtypes.DType):
        name = found.__name__ if found is str else found.name
        raise TypeError(f"there are no tensors of {name}")
    return found


def tensor_of(array: np.ndarray, device: Any = None) -> Any:
    """A tensor with a copy of the array. TypeError for an unsupported dtype."""
    return from_data.tensor(array, dtype=_dtype_of_array(array), device=device)


def narrow_of(array: np.ndarray, device: Any = None) -> Narrow:
    return Narrow(tensor_of(array.astype(NARROW[array.dtype].np), device), array.dtype)


def _dtype_of_array(array: np.ndarray) -> Any:
    try:
        return dtypes.from_numpy(array.dtype)
    except TypeError:
        raise TypeError(f"there are no tensors of {array.dtype}") from None


def array_of(value: Value) -> np.ndarray:
    """The value as an array. A tensor is computed for that."""
    if isinstance(value, Host):
        return value.array
    if isinstance(value, Narrow):
        return value.array()
    if not isinstance(value, Handle):
        raise TypeError(f"expected a tensor, got {'nothing' if value is None else 'a sequence'}")
    tensor: Any = value
    return np.asarray(tensor.detach().cpu())


def on_device(value: Value, device: Any) -> Any:
    """A Host as a tensor, any other value itself."""
    return value.tensor(device) if isinstance(value, Host) else value


def given(value: Any) -> Value:
    """What a user gives as an input, as a value: arrays may stand for dtypes without tensors."""
    if isinstance(value, (list, tuple)):
        return [given(v) for v in value]
    if not isinstance(value, np.ndarray):
        return value
    return narrow_of(value) if value.dtype in NARROW else Host(value)


def returned(value: Value, device: Any) -> Any:
    """What a user gets for a value: dtypes without tensors are arrays."""
    if isinstance(value, list):
        return [returned(v, device) for v in value]
    if isinstance(value, Host):
        if value.array.dtype.kind in "OSUT":
            return value.array.astype(object)
        return value.array if value.array.dtype in NARROW else value.tensor(device)
    return value.array() if isinstance(value, Narrow) else value
