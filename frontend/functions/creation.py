"""Tensors from data, from shapes and from other tensors."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node
from tilewright.ir.numeric.special import cast
from tilewright.ir.op import not_implemented
from tilewright.ir.shape import Size, check_storage
from tilewright.runtime import devices
from tilewright.runtime.host import copy_of

from .. import devices as device_module
from .. import recording
from ..layouts import strided
from ..recording import Handle, SharedMemory, compounds, record_fallible, view, views
from ..recording.builders import builder
from .arguments import into, sizes
from .memory import flat_memory
from .spellings import also_named, by_numpys_names

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike, Number


def from_buffer(buffer: Any, dtype: DType, device: str = "cpu") -> Tensor:
    """A tensor that owns `buffer`, contiguous memory of `device`."""
    t = recording.blank()
    t._buffer = buffer
    t._aval = (Size(buffer.shape), dtype, device)
    return t


def _upload(array: np.ndarray, dtype: DType, device: str) -> Any:
    if device != "cpu":
        return from_buffer(devices.get(device).from_numpy(array), dtype, device)
    return from_buffer(array, dtype)


def beside(array: np.ndarray, like: Tensor) -> Tensor:
    """A tensor on the device of `like` that takes over `array`, which nobody else may hold."""
    device = like._typed()[2]
    array = np.ascontiguousarray(array).reshape(array.shape)
    return _upload(array, dtypes.from_numpy(array.dtype), device)


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
        t = _upload(array, dtypes.from_numpy(array.dtype), device_module.resolve(device))
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
    t = _upload(
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
    except ValueError as error:
        raise ValueError(f"expected sequences of equal length: {error}{at_user_line()}") from None
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
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return isinstance(data, Handle)


def _untensor(data: Any) -> Any:
    if isinstance(data, Handle):
        return data.detach()._array()  # type: ignore[attr-defined]
    return [_untensor(d) for d in data] if isinstance(data, (list, tuple)) else data


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
    """A tensor that shares the memory of `array`: each sees what the other writes."""
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


def frombuffer(buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0) -> Tensor:
    """A 1-d tensor over the memory of a buffer object."""
    if not memoryview(buffer).nbytes or not count:
        raise ValueError(f"frombuffer: expected at least one element{at_user_line()}")
    return from_numpy(
        np.frombuffer(buffer, dtype=recording.named_dtype(dtype).np, count=count, offset=offset)
    )


# ---- from shapes -----------------------------------------------------------------------------


def _written(out: Tensor | None, dtype: DType | None) -> DType | None:
    """The dtype of a result that is written to `out`."""
    return out.dtype if dtype is None and out is not None else dtype


def _full(value: Node, shape: tuple[int, ...]) -> Node:
    return ops.expand(value, shape)


def filled(
    shape: Any,
    value: Number | Tensor,
    dtype: DType | None,
    device: DeviceLike | None,
    requires_grad: bool = False,
    pin_memory: bool = False,
    site: Any = None,
) -> Tensor:
    """site: the caller, if the value may change from call to call."""
    t = recording.wrap(_filled(shape, value, dtype, device, site))
    return finished(t, requires_grad, pin_memory)


def _filled(shape: Any, value: Any, dtype: DType | None, device: Any, site: Any = None) -> Node:
    target = tuple(map(int, shape))
    if value.__class__ is int and dtype.__class__ is DType and site is None:  # zeros and ones
        key = (_filled, target, value, dtype, device_module.resolve(device))
        found = recording.lookup(key)
        if found is None:
            found = recording.remember(key, _filled_anew(target, value, dtype, device))
        return found
    return _filled_anew(target, value, dtype, device, site)


def _filled_anew(
    target: tuple[int, ...], value: Any, dtype: DType | None, device: Any, site: Any = None
) -> Node:
    if target and min(target) < 0:
        raise RuntimeError(
            f"Trying to create tensor with negative dimension: {list(target)}{at_user_line()}"
        )
    if dtype is None:
        dtype = dtypes.of_scalar(value, recording.default_dtype())
    dtype = recording.named_dtype(dtype)
    if isinstance(value, complex) and not dtype.is_complex:
        raise RuntimeError(
            f"value cannot be converted to type {dtype} without overflow{at_user_line()}"
        )
    check_storage(target, dtype.itemsize)
    where = device_module.resolve(device)
    number = (
        ops.constant(value, dtype, where)
        if site is None
        else (recording.number((site, target, type(value)), value, dtype, 8, where))
    )
    return ops.expand(number, target)


def full(
    size: int | Sequence[int],
    fill_value: Number | Tensor,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor of shape `size` filled with one value."""
    if isinstance(fill_value, Handle):
        fill_value = fill_value.item()
    return into(
        out,
        filled(
            sizes((size,)),
            fill_value,
            _written(out, dtype),
            device,
            requires_grad,
            pin_memory,
            full,
        ),
    )


def zeros(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Zeros of shape `size`; without elements in a sparse layout."""
    if layout not in (None, strided):
        dtype = recording.named_dtype(dtype)
        return compounds.sparse().empty(layout, sizes(args, size), dtype, device, requires_grad)
    dtype = recording.named_dtype(_written(out, dtype))
    return into(
        out,
        filled(sizes(args, size), 0, dtype, device, requires_grad, pin_memory),
        cast=dtype is None,
    )


def ones(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """Ones of shape `size`."""
    dtype = recording.named_dtype(_written(out, dtype))
    return into(
        out,
        filled(sizes(args, size), 1, dtype, device, requires_grad, pin_memory),
        cast=dtype is None,
    )


def empty(
    *args: int | Sequence[int],
    size: Sequence[int] | None = None,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """A tensor whose contents don't matter.

    They read as zeros, so that runs are reproducible. Only a kernel of the user's gets memory that
    nothing was written to. In a sparse layout it has no elements.
    """
    if layout not in (None, strided):
        dtype = recording.named_dtype(dtype)
        return compounds.sparse().empty(layout, sizes(args, size), dtype, device, requires_grad)
    node = _filled(sizes(args, size), 0, recording.named_dtype(_written(out, dtype)), device)
    t = recording.wrap(ops.empty(node))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def _like(value: Any) -> Any:
    def build(
        input: Any,
        *,
        dtype: Any = None,
        layout: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        memory_format: Any = None,
        pin_memory: bool = False,
    ) -> Any:
        """A tensor of the shape, dtype and device of `input` (unless others are named)."""
        if compounds.is_compound(input):
            return compounds.apply(filled, (input, value, dtype, requires_grad))
        return filled(
            input.shape,
            value,
            recording.named_dtype(dtype, input.dtype),
            device or input.device,
            requires_grad,
            pin_memory,
        )

    return by_numpys_names(build)


zeros_like, ones_like = _like(0), _like(1)


@by_numpys_names
def empty_like(
    input: Tensor,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: str | None = None,
    pin_memory: bool = False,
) -> Tensor:
    """`empty` of the shape, dtype and device of `input` (unless others are named)."""
    if compounds.is_compound(input):
        return zeros_like(input, dtype=dtype, requires_grad=requires_grad)
    return empty(
        tuple(input.shape),
        dtype=recording.named_dtype(dtype, input.dtype),
        device=device or input.device,
        requires_grad=requires_grad,
        pin_memory=pin_memory,
    )


@by_numpys_names
def full_like(
    input: Tensor,
    fill_value: Number | Tensor,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    memory_format: Any = None,
    pin_memory: bool = False,
) -> Tensor:
    if isinstance(fill_value, Handle):
        fill_value = fill_value.item()  # type: ignore[attr-defined]
    if compounds.is_compound(input):
        return compounds.apply(full, (input, fill_value, dtype, requires_grad))
    return filled(
        input.shape,
        fill_value,
        recording.named_dtype(dtype, input.dtype),
        device or input.device,
        requires_grad,
        pin_memory,
        full,
    )


def _arange(start: Number, step: Number, count: int, dtype: DType, device: Any) -> Node:
    """start + i * step. Fractions are rounded once, from float64."""
    fractions = dtype.is_floating_point and not (start == int(start) and step == int(step))
    wide = dtypes.float64 if fractions else dtype
    steps = ops.cast(ops.iota(count), wide)
    if step != 1:
        steps = steps * ops.constant(step, wide, device)
    return ops.cast(ops.constant(start, wide, device) + steps, dtype)


def arange(
    start: Number | Tensor | None = None,
    end: Number | Tensor | None = None,
    step: Number | Tensor = 1,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """start, start + step, … below `end`; int64 if all three are ints."""
    if end is None:
        start, end = None, start
    if end is None:
        raise TypeError(f"arange() misses its end{at_user_line()}")
    start = 0 if start is None else start
    values = [v.item() if isinstance(v, (Handle, np.generic)) else v for v in (start, end, step)]
    start, end, step = values
    if step == 0:
        raise RuntimeError(f"step must be nonzero{at_user_line()}")
    if not math.isfinite(start) or not math.isfinite(end):
        raise RuntimeError(f"unsupported range: {start} -> {end}{at_user_line()}")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign{at_user_line()}"
        )
    dtype = _written(out, dtype)
    if dtype is None:
        ints = isinstance(start, int) and isinstance(end, int) and isinstance(step, int)
        dtype = dtypes.int64 if ints else recording.default_dtype()
    dtype = recording.named_dtype(dtype)
    if dtype.is_complex:
        raise not_implemented("arange", dtype)
    if dtype is dtypes.int64:  # the count is that of the numbers as they are written
        start, end, step = int(start), int(end), int(step)
        if not step:
            raise ValueError(f"step must be nonzero{at_user_line()}")
    count = max(0, math.ceil((end - start) / step))
    if not dtype.is_floating_point:
        start, step = int(start), int(step)
    where = device_module.resolve(device)
    key = (arange, start, step, count, dtype, where)
    node = recording.lookup(key)
    if node is None:
        node = recording.remember(key, _arange(start, step, count, dtype, where))
    t = recording.wrap(node)
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def _count(name: str, what: str, given: Any) -> int:
    count = operator.index(given)
    if count < 0:
        raise RuntimeError(f"{name}: {what} must be non-negative, got {count}{at_user_line()}")
    return count


def _number(name: str, what: str, given: Any, dtype: DType | None = None) -> Any:
    kind = complex if dtype is not None and dtype.is_complex else float
    if isinstance(given, Handle):
        if given.dim():  # type: ignore[attr-defined]
            raise RuntimeError(
                f"{name} only supports 0-dimensional start and end tensors, but got {what} with "
                f"{given.dim()} dimension(s).{at_user_line()}"  # type: ignore[attr-defined]
            )
        return kind(given.item())  # type: ignore[attr-defined]
    return kind(given)


_WIDER = {"f": np.float64, "d": np.longdouble}
"""The dtypes that round a product and a sum once, by the character of their own dtype."""


def _spaced(start: Any, end: Any, steps: int, dtype: DType) -> np.ndarray:
    """`steps` numbers evenly spaced, with PyTorch's bits: the first half is counted from the start
    and the second one from the end, so that numbers around zero are symmetric. Those of whole
    numbers are spaced between whole ends: they are about to be truncated."""
    if not dtype.is_differentiable:
        start, end = int(start), int(end)
    kind = dtype.np if dtype.is_differentiable else np.dtype(np.float64)
    first, last = np.array(start, kind), np.array(end, kind)
    step = (last - first) / np.array(max(steps - 1, 1), kind)
    at = np.arange(steps).astype(_WIDER.get(kind.char, kind))
    line = np.where(at < max(steps // 2, 1), first + step * at, last - step * (steps - 1 - at))
    return line.astype(kind)


def _spaced_dtype(name: str, dtype: DType | None, *ends: Any) -> DType:
    """The dtype of numbers between two ends: if none was asked for, the default one, or its complex
    one if an end is complex."""
    kinds = [e.dtype.is_complex if isinstance(e, Handle) else isinstance(e, complex) for e in ends]
    kind = recording.named_dtype(dtype)
    if True in kinds and not kind.is_complex:
        kind = dtypes.complex_of(kind) if dtype is None else kind
        if not kind.is_complex:
            raise RuntimeError(
                f"torch.{name}(): inferred dtype {dtypes.complex_of(recording.named_dtype(None))} "
                f"can't be safely cast to passed dtype {kind}{at_user_line()}"
            )
    return _computed(name, kind)


def _computed(name: str, dtype: DType) -> DType:
    """`dtype`, unless it is complex32, which PyTorch computes no values in."""
    if dtype is dtypes.complex32:
        raise not_implemented(name, dtype)
    return dtype


def linspace(
    start: Number | Tensor,
    end: Number | Tensor,
    steps: int,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers evenly spaced from `start` to `end`, both included."""
    dtype = _spaced_dtype("linspace", _written(out, dtype), start, end)
    steps = _count("linspace", "steps", steps)
    first, last = (
        _number("linspace", what, given, dtype) for what, given in (("start", start), ("end", end))
    )
    if recording.stand_in(linspace_of) and dtype.is_floating_point:
        t = recording.wrap(linspace_of(first, last, steps, dtype))
    else:
        line = _spaced(first, last, steps, dtype).astype(dtype.np)
        t = _upload(line, dtype, device_module.resolve(device))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def linspace_of(start: float, end: float, steps: int, dtype: DType) -> Node:
    """The values of `linspace` as a graph, for recordings that are generic in sizes."""
    place = ops.cast(ops.iota(steps), dtype)
    return place * ((end - start) / max(steps - 1, 1)) + start


def eye_of(rows: int, columns: int, dtype: DType) -> Node:
    """The values of `eye` as a graph, for recordings that are generic in sizes."""
    place = ops.reshape(ops.iota(rows), (rows, 1)), ops.reshape(ops.iota(columns), (1, columns))
    shape = (rows, columns)
    return ops.cast(ops.eq(*(ops.expand(p, shape) for p in place)), dtype)


def logspace(
    start: float,
    end: float,
    steps: int,
    base: float = 10.0,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """`steps` numbers from base^start to base^end, whose logarithms are evenly spaced."""
    dtype = _spaced_dtype("logspace", _written(out, dtype), start, end)
    steps = _count("logspace", "steps", steps)
    first, last = (
        _number("logspace", what, given, dtype) for what, given in (("start", start), ("end", end))
    )
    exponents = _spaced(first, last, steps, dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        line = np.power(float(base), exponents).astype(dtype.np)
    t = _upload(line, dtype, device_module.resolve(device))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def eye(
    n: int,
    m: int | None = None,
    *,
    out: Tensor | None = None,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    requires_grad: bool = False,
    pin_memory: bool = False,
) -> Tensor:
    """The identity matrix of n rows and m columns."""
    dtype = _computed("eye", recording.named_dtype(_written(out, dtype)))
    n, m = _count("eye", "n", n), None if m is None else _count("eye", "m", m)
    if recording.stand_in(eye_of):
        t = recording.wrap(eye_of(n, n if m is None else m, dtype))
    else:
        t = _upload(np.eye(n, m, dtype=dtype.np), dtype, device_module.resolve(device))
    return into(out, finished(t, requires_grad, pin_memory), cast=dtype is None)


def scalar_tensor(
    s: Number, *, dtype: DType | None = None, device: DeviceLike | None = None, **options: Any
) -> Tensor:
    return tensor(s, dtype=recording.named_dtype(dtype), device=device, **options)


@builder("one_hot")
def _one_hot(index: Node, classes: int) -> Node:
    index = ops.checked(ops.cast(index, dtypes.int64), classes, index.rank, "one-hot")
    line = ops.reshape(ops.iota(classes), (1,) * index.rank + (classes,))
    return ops.cast(ops.eq(ops.unsqueeze(index, index.rank), line), dtypes.int64)


@also_named(input="tensor")
def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """int64 one-hot rows of the class indices in `tensor`, which are int64."""
    if tensor.dtype is not dtypes.int64:
        raise RuntimeError(
            "one_hot is only applicable to index tensor of type LongTensor, but got one of "
            f"{tensor.dtype}{at_user_line()}"
        )
    if num_classes == -1:
        num_classes = int(tensor.max().item()) + 1
    return record_fallible(_one_hot, tensor, int(num_classes))
