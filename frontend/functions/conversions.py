"""Methods that convert to a dtype: `t.float()`, `t.long()`, …"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.location import warn
from tilewright.ir.node import Node

from ..recording import record
from ..recording.builders import builder
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
