"""Tensors from data: numbers, sequences, arrays and buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.numeric.special import cast
from tilewright.ir.shape import Size
from tilewright.runtime import devices
from tilewright.runtime.host import copy_of

from .. import devices as device_module
from .. import recording
from ..recording import Handle, SharedMemory, view, views
from .memory import flat_memory

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike, Number


def from_buffer(buffer: Any, dtype: DType, device: str = "cpu") -> Tensor:
    """A tensor that owns `buffer`, contiguous memory of `device`."""
    return recording.of_array(buffer, (Size(buffer.shape), dtype, device))


def upload(array: np.ndarray, dtype: DType, device: str) -> Any:
    if device != "cpu":
        return from_buffer(devices.get(device).from_numpy(array), dtype, device)
    return from_buffer(array, dtype)


def beside(array: np.ndarray, like: Tensor) -> Tensor:
    """A tensor on the device of `like` that takes over `array`, which nobody else may hold."""
    device = like._typed()[2]
    array = np.ascontiguousarray(array).reshape(array.shape)
    return upload(array, dtypes.from_numpy(array.dtype), device)


def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A new tensor with a copy of `data`: numbers, nested sequences, arrays or tensors.

    Python floats become the default dtype, ints int64, bools bool. pin_memory: see
    `Tensor.pin_memory`.
    """
    if dtype is not None:
        dtype = recording.named_dtype(dtype)
    array = _of_number(data, dtype)
    if array is not None:
        t = upload(array, dtypes.from_numpy(array.dtype), device_module.resolve(device))
        return finished(t, requires_grad, pin_memory)
    if isinstance(data, Handle):
        warn_of_copy("torch.tensor")
        if dtype is None:
            dtype = data.dtype
        if device is None:
            device = data.device
        array = data.detach()._array()
    else:
        array = _as_array(data)
        if dtype is None:
            dtype = _dtype_of(data, array)
        if not isinstance(data, (np.ndarray, np.generic)):
            _check_range(array, dtype)
    if dtype is dtypes.uint64 and array.dtype.kind == "f" and isinstance(data, (list, tuple)):
        array = _wide_integers(data)
    elif array.dtype != dtype.np:
        array = cast(array, dtype.np)
    else:
        array = copy_of(array)
    t = upload(
        np.ascontiguousarray(array).reshape(array.shape), dtype, device_module.resolve(device)
    )
    return finished(t, requires_grad, pin_memory)


def _of_number(data: Any, dtype: DType | None) -> np.ndarray | None:
    """The array of a Python number in the dtype that numbers of its type have by default; None for
    other data, and for numbers that this dtype may not hold."""
    kind = data.__class__
    if kind is float:
        own = recording.default_dtype()
        fits = own is dtypes.float64 or (own is dtypes.float32 and -_LARGE < data < _LARGE)
    elif kind is int:
        own, fits = dtypes.int64, -(1 << 63) <= data < 1 << 63
    elif kind is bool:
        own, fits = dtypes.bool_, True
    else:
        return None
    return np.array(data, own.np) if fits and (dtype is None or dtype is own) else None


_LARGE = 3e38  # float32 holds smaller numbers, and NumPy doesn't warn of them


def warn_of_copy(name: str) -> None:
    """Warn as PyTorch does where a function that takes data is given a tensor."""
    warn(
        "To copy construct from a tensor, it is recommended to use sourceTensor.detach().clone() "
        "or sourceTensor.detach().clone().requires_grad_(True), rather than "
        f"{name}(sourceTensor)."
    )


def finished(t: Tensor, requires_grad: bool, pin_memory: bool = False) -> Tensor:
    """Apply the options of all factories to a new tensor."""
    t = t.pin_memory() if pin_memory else t
    return t.requires_grad_() if requires_grad else t


def _as_array(data: Any) -> np.ndarray:
    if isinstance(data, (list, tuple)) and _holds_tensor(data):
        data = _untensor(data)
    try:
        array = np.asarray(data)
    except ValueError:  # rows of several lengths, or a tensor of one element after a number
        data = _untensor(data)
        try:
            array = np.asarray(data)
        except ValueError as error:
            raise ValueError(
                f"expected sequences of equal length: {error}{at_user_line()}"
            ) from None
    if array.dtype.kind in "OUSMmV" and array.dtype not in dtypes._BY_NUMPY:
        raise _no_number(data, array)
    return array


def _no_number(data: Any, array: np.ndarray) -> Exception:
    """The error for data that holds anything but numbers, of PyTorch's class."""
    if isinstance(data, (str, bytes, np.ndarray, np.generic)):
        return TypeError(
            f"can't make a tensor of {type(data).__name__} with elements of type {array.dtype}: "
            f"expected numbers{at_user_line()}"
        )
    if array.dtype.kind in "US":
        first = data
        while isinstance(first, (list, tuple)):
            first = first[0]
        if not isinstance(first, str):  # the text stands where a number stood before
            kind = {"U": "str", "S": "bytes"}[array.dtype.kind]
            return TypeError(f"invalid data type '{kind}': expected numbers{at_user_line()}")
        return ValueError(f"too many dimensions 'str': expected numbers{at_user_line()}")
    strange = [
        each for each in array.flat if not isinstance(each, (bool, int, float, complex, np.number))
    ]
    if not strange:
        return ValueError(f"an integer is too large for int64{at_user_line()}")
    return RuntimeError(
        f"Could not infer dtype of {type(strange[0]).__name__}: expected numbers{at_user_line()}"
    )


def _check_range(array: np.ndarray, dtype: DType) -> None:
    """RuntimeError for Python numbers that `dtype` can't hold. Unsigned dtypes wrap, as in C."""
    if array.dtype.kind == "u" and array.dtype.itemsize == 8 and dtype is dtypes.int64:
        raise ValueError(f"an integer is too large for int64{at_user_line()}")
    if array.dtype.kind == "c" and not dtype.is_complex:
        raise TypeError(f"must be real number, not complex{at_user_line()}")
    if dtype.np.kind not in "iu" or array.dtype.kind not in "iuf" or not array.size:
        return
    if array.dtype.kind == "i" and array.dtype.itemsize <= dtype.itemsize and dtype.is_signed:
        return
    limits = np.iinfo(dtype.np)
    low = limits.min if dtype.is_signed else -limits.max
    if not (low <= array.min() and array.max() <= limits.max):
        raise RuntimeError(
            f"value cannot be converted to type {dtype} without overflow{at_user_line()}"
        )


def _wide_integers(data: Sequence[Any]) -> np.ndarray:
    """Nested numbers as uint64. NumPy makes floats of integers from both sides of 2**63."""
    numbers = np.asarray(_untensor(data), object)
    exact = [int(each) % 2**64 for each in numbers.flat]
    return np.array(exact, np.uint64).reshape(numbers.shape)


def _holds_tensor(data: Any) -> bool:
    return isinstance(_first(data)[0], Handle)


def _first(data: Any) -> tuple[Any, int]:
    """The first of nested elements that is no list or tuple, and in how many of these it is."""
    levels = 0
    while isinstance(data, (list, tuple)) and data:
        data, levels = data[0], levels + 1
    return data, levels


def _untensor(data: Any) -> Any:
    """Nested data with arrays for tensors. As in PyTorch, where the first element is a number or a
    tensor, a tensor stands for a number and has one element, whatever its shape."""
    try:
        return _arrays(data, _first(data)[1])
    except RecursionError:
        raise TypeError(f"new(): self-referential lists are incompatible{at_user_line()}") from None


def _arrays(data: Any, levels: int) -> Any:
    if isinstance(data, Handle):
        array = data.detach()._array()  # type: ignore[attr-defined]
        if levels:
            return array
        if array.size != 1:
            kind = TypeError if array.dtype.kind in "iu" else ValueError
            raise kind(f"only one element tensors can be converted to numbers{at_user_line()}")
        return array.reshape(())
    return [_arrays(d, levels - 1) for d in data] if isinstance(data, (list, tuple)) else data


def _dtype_of(data: Any, array: np.ndarray) -> DType:
    """The dtype that holds every element: Python's floats count as the default dtype."""
    if isinstance(data, (np.ndarray, np.generic)):
        return dtypes.from_numpy(array.dtype)
    found: DType | None = None
    for own in _dtypes_in(data):
        found = own if found is None else dtypes.promote(found, own)
    return found or recording.default_dtype()


def _dtypes_in(data: Any) -> set[DType]:
    if isinstance(data, Handle):
        return {data.dtype}  # type: ignore[attr-defined]
    if isinstance(data, np.ndarray):
        return {dtypes.from_numpy(data.dtype)}
    if isinstance(data, (list, tuple)):
        kinds = set(map(type, data))
        if kinds <= _PLAIN:  # a row of Python numbers
            return {dtypes.of_scalar(k(0), recording.default_dtype()) for k in kinds}
        return set().union(*map(_dtypes_in, data))
    if isinstance(data, np.generic):
        return {dtypes.from_numpy(data.dtype)}
    if hasattr(data, "__array__") or isinstance(data, range):
        return {dtypes.from_numpy(np.asarray(data).dtype)}
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):  # a deque, an array.array
        return set().union(*map(_dtypes_in, data))
    return {dtypes.of_scalar(data, recording.default_dtype())}


_PLAIN = {bool, int, float, complex}


def as_tensor(data: Any, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """`data` as a tensor, without a copy where it already is one (or an array of that dtype)."""
    if isinstance(data, Handle):
        return data.to(device=device or data.device, dtype=recording.named_dtype(dtype, data.dtype))
    fits = isinstance(data, np.ndarray) and (
        dtype is None or recording.named_dtype(dtype).np == data.dtype
    )
    if fits and device_module.resolve(device) == "cpu":
        return from_numpy(data)
    return tensor(data, dtype=dtype, device=device)


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor that shares the memory of `array`: each sees what the other writes.

    A tensor of an array that may only be read gets memory of its own when it is first written.
    PyTorch writes to the array.
    """
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__}){at_user_line()}")
    dtype = dtypes.from_numpy(array.dtype)
    if not array.dtype.isnative:
        raise ValueError(
            f"given numpy array has byte order different from the native one{at_user_line()}"
        )
    if any(s < 0 for s in array.strides):
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            f"strides are not supported. Use array.copy(){at_user_line()}"
        )
    if array.size and not array.flags.c_contiguous:
        return _of_strides(array)
    t = from_buffer(array, dtype)
    t._shared = SharedMemory(keep=array)
    return t


def _of_strides(array: np.ndarray) -> Tensor:
    """A tensor with the strides of an array that isn't contiguous: a view of the memory that the
    array spans."""
    order = sorted(range(array.ndim), key=lambda axis: -array.strides[axis])
    dense = array.transpose(order)
    if dense.flags.c_contiguous:
        return view(from_numpy(dense), views.PERMUTE, tuple(np.argsort(order).tolist()))
    if any(s % array.itemsize for s in array.strides):
        raise ValueError(
            "given numpy array strides not a multiple of the element byte size. Copy the numpy "
            f"array to reallocate the memory{at_user_line()}"
        )
    strides = tuple(s // array.itemsize for s in array.strides)
    return view(from_numpy(flat_memory(array)), views.AS_STRIDED, Size(array.shape), strides, 0)


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A 1-d tensor over the memory of a buffer object, of `count` elements from byte `offset` on;
    ValueError if the buffer doesn't have them."""
    try:
        room = memoryview(buffer).nbytes
    except TypeError:
        raise ValueError(
            f"object does not implement Python buffer protocol.{at_user_line()}"
        ) from None
    if not room or not count:
        raise ValueError(
            f"both buffer length ({room}) and count ({count}) must not be 0{at_user_line()}"
        )
    if not 0 <= offset < room:
        raise ValueError(
            f"offset ({offset} bytes) must be non-negative and no greater than buffer length "
            f"({room} bytes) minus 1{at_user_line()}"
        )
    dtype = recording.named_dtype(dtype)
    made = from_numpy(np.frombuffer(buffer, dtype=dtype.np, count=count, offset=offset))
    return finished(made, requires_grad)


def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: DeviceLike | None = None, **options: Any
) -> Tensor:
    return tensor(s, dtype=recording.named_dtype(dtype), device=device, **options)
