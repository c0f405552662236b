"""Conversions to other dtypes and devices: `t.to(...)`, `t.float()`, `t.long()`, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.node import Node

from .. import devices, recording
from ..recording import Handle, record
from ..recording.builders import builder
from . import shapes
from .call import public

if TYPE_CHECKING:
    from .._tensor import Tensor


@builder("to", gradient="ToCopyBackward0")
def cast(x: Node, dtype: DType) -> Node:
    if x.dtype.is_complex and not dtype.is_complex and dtype is not dtypes.bool_:
        warn("Casting complex values to real discards the imaginary part", once=True)
    return ops.cast(x, dtype)


copy_to = builder("to", gradient="ToCopyBackward0")(ops.copy_to)


def _to(dtype: DType) -> Callable[..., Any]:
    def method(self: Tensor, memory_format: str | None = None) -> Tensor:
        return self if self.dtype is dtype else record(cast, self, dtype)

    return method


for _name, _dtype in {
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "short": dtypes.int16,
    "char": dtypes.int8,
    "byte": dtypes.uint8,
    "bool": dtypes.bool_,
    "chalf": dtypes.complex32,
    "cfloat": dtypes.complex64,
    "cdouble": dtypes.complex128,
}.items():
    public(_name, function=False)(_to(_dtype))


def to(t: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
    """`t.to(*args, **kwargs)`."""
    dtype, where, copy, non_blocking = (
        kwargs.pop("dtype", None),
        kwargs.pop("device", None),
        kwargs.pop("copy", False),
        kwargs.pop("non_blocking", False),
    )
    kwargs.pop("memory_format", None)
    flags: list[bool] = []
    if kwargs:
        raise TypeError(
            f"to() got an unexpected keyword argument {next(iter(kwargs))!r}{at_user_line()}"
        )
    for arg in args:
        if isinstance(arg, (DType, type)):
            dtype = arg
        elif isinstance(arg, Handle):
            dtype, where = arg.dtype, arg.device
        elif isinstance(arg, (str, devices.device)) or type(arg) is int:
            where = arg
        elif isinstance(arg, bool):
            flags.append(arg)
        elif arg is not None:
            raise TypeError(
                f"to() received an invalid argument of type {type(arg).__name__}{at_user_line()}"
            )
    non_blocking, copy = non_blocking or any(flags[:1]), copy or any(flags[1:])
    result = t
    if where is not None:
        name = devices.resolve(where)
        if name != result._typed()[2]:
            if t.is_meta:
                raise NotImplementedError(
                    "Cannot copy out of meta tensor; no data! Please use "
                    "torch.nn.Module.to_empty() instead of torch.nn.Module.to() when moving "
                    f"module from meta to a different device.{at_user_line()}"
                )
            fetched = non_blocking and name == "cpu"
            result = record(copy_to, result, name, *(False,) * fetched)
    if dtype is not None:
        dtype = recording.named_dtype(dtype)
        if dtype is not result.dtype:
            result = record(cast, result, dtype)
    return shapes.clone(t) if copy and result is t else result
