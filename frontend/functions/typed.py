"""Types of tensors by PyTorch's older names: `torch.FloatTensor`, `x.type("torch.LongTensor")`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.shape import Size
from tilewright.runtime import devices

from .. import recording
from ..devices import resolve, set_default_device
from ..recording import Handle, epoch
from . import creation, from_data

if TYPE_CHECKING:
    from .._tensor import Tensor
    from ..types import DeviceLike

_WORDS = {
    dtypes.float32: "Float",
    dtypes.float64: "Double",
    dtypes.float16: "Half",
    dtypes.bfloat16: "BFloat16",
    dtypes.float8_e4m3fn: "Float8_e4m3fn",
    dtypes.float8_e5m2: "Float8_e5m2",
    dtypes.int64: "Long",
    dtypes.int32: "Int",
    dtypes.int16: "Short",
    dtypes.int8: "Char",
    dtypes.uint8: "Byte",
    dtypes.uint16: "UInt16",
    dtypes.uint32: "UInt32",
    dtypes.uint64: "UInt64",
    dtypes.bool_: "Bool",
    dtypes.complex32: "ComplexHalf",
    dtypes.complex64: "ComplexFloat",
    dtypes.complex128: "ComplexDouble",
}


def constructed(
    dtype: DType | None,
    place: Any,
    args: Sequence[Any],
    *,
    data: Any = None,
    size: Sequence[int] | None = None,
    device: DeviceLike | None = None,
) -> Tensor:
    """Make the tensor of a call of Tensor(...), FloatTensor(...) or x.new(...).

    The argument is a size, a sequence of data, or a tensor, whose memory the result shares.
    dtype: None for the default dtype; a given tensor may then have any. place: the device if the
    call names none.
    """
    device = place if device is None else device
    args = args or ((data,) if data is not None else (Size(size),) if size is not None else ())
    first = args[0] if args else 0
    if len(args) == 1 and isinstance(first, Handle):
        if dtype not in (None, first.dtype):
            raise TypeError(
                f"expected a tensor of {dtype}, got one of {first.dtype}: cast it{at_user_line()}"
            )
        return first.detach()
    dtype = dtype or recording.default_dtype()
    if len(args) == 1 and isinstance(first, (str, bytes)):
        raise TypeError(f"new(): invalid data type {type(first).__name__!r}{at_user_line()}")
    if len(args) == 1 and not isinstance(first, Size) and hasattr(first, "__len__"):
        if isinstance(first, (set, frozenset, dict)):
            raise _no_sequence(first)
        return from_data.tensor(first, dtype=dtype, device=device)
    if isinstance(first, (bool, float)) or first is None or not _are_sizes(args):
        raise _no_sequence(first)
    return creation.zeros(*(args or (0,)), dtype=dtype, device=device)


def _are_sizes(args: Sequence[Any]) -> bool:
    sizes = args[0] if len(args) == 1 and isinstance(args[0], Size) else args
    return all(isinstance(each, (int, np.integer, Handle)) for each in sizes)


def _no_sequence(got: Any) -> TypeError:
    return TypeError(
        f"new(): data must be a sequence (got {type(got).__name__}), or sizes given as ints"
        f"{at_user_line()}"
    )


class tensortype(type):
    """The class of the types. A tensor with a type's dtype and kind of device is its instance."""

    dtype: DType
    is_cuda: bool

    def __call__(cls, *data: Any, **options: Any) -> Any:
        if cls.is_cuda and not devices.cuda_count():
            raise TypeError(
                f"type torch.cuda.{cls.__name__} not available. There is no CUDA device"
                + at_user_line()
            )
        return constructed(cls.dtype, "cuda" if cls.is_cuda else "cpu", data, **options)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, epoch.tensor_type)
            and instance.dtype is cls.dtype
            and instance.is_cuda is cls.is_cuda
        )


def _type(dtype: DType, is_cuda: bool) -> Any:
    module = "torch.cuda" if is_cuda else "torch"
    fields = {"dtype": dtype, "is_cuda": is_cuda, "__module__": module}
    return tensortype(f"{_WORDS[dtype]}Tensor", (), fields)


_CLASSES = [
    d for d in _WORDS if d not in dtypes.FLOAT8 and d.name not in ("uint16", "uint32", "uint64")
]
ON_CPU, ON_CUDA = (
    {t.__name__: t for t in (_type(dtype, is_cuda) for dtype in _CLASSES)}
    for is_cuda in (False, True)
)
globals().update(ON_CPU)
_BY_NAME = {f"{t.__module__}.{t.__name__}": t for t in (*ON_CPU.values(), *ON_CUDA.values())}


def name_of(t: Tensor) -> str:
    """The name of a tensor's type, such as `torch.FloatTensor`."""
    return f"torch.{'cuda.' if t.is_cuda else ''}{_WORDS[t.dtype]}Tensor"


def cast(t: Tensor, wanted: Any, non_blocking: bool = False) -> Any:
    """The tensor cast to a dtype, to a type, or to a type by its name."""
    if isinstance(wanted, DType):
        return t.to(wanted)
    kind = _found(wanted)
    if kind.is_cuda == t.is_cuda:
        return t.to(kind.dtype)
    where = "cuda" if kind.is_cuda else "cpu"
    return t.to(where, kind.dtype, non_blocking=non_blocking)


def _found(wanted: Any) -> Any:
    if wanted is epoch.tensor_type or wanted == "torch.Tensor":
        return ON_CPU[f"{_WORDS[recording.default_dtype()]}Tensor"]
    if isinstance(wanted, tensortype):
        return wanted
    if not isinstance(wanted, (str, type)):
        raise TypeError(
            f"dtype must be a type, str, or dtype object, got {type(wanted).__name__}"
            f"{at_user_line()}"
        )
    name = wanted if isinstance(wanted, str) else wanted.__name__
    if name not in _BY_NAME:
        raise ValueError(
            f"invalid type: {name!r}, expected a dtype or a name such as 'torch.FloatTensor'"
            f"{at_user_line()}"
        )
    return _BY_NAME[name]


def set_default_tensor_type(t: Tensor) -> None:
    """Set the type of new tensors: a dtype of floats and a kind of device."""
    warn(
        "torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use "
        "torch.set_default_dtype() and torch.set_default_device() as alternatives.",
        once=True,
    )
    kind = _found(t)
    where = resolve("cuda" if kind.is_cuda else "cpu")
    recording.set_default_dtype(kind.dtype)
    set_default_device(where)
