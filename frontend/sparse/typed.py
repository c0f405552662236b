"""Types of sparse tensors by PyTorch's older names, such as `torch.sparse.FloatTensor`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import warn

from .. import layouts
from ..functions import typed
from ..recording import Handle
from ..recording.compounds import rule
from .creating import sparse_coo_tensor
from .tensors import COO


def _has_positions(args: Sequence[Any]) -> bool:
    return bool(args) and isinstance(args[0], Handle)


def constructed(dtype: DType, device: Any, args: Sequence[Any]) -> Any:
    """A COO tensor of positions and elements, with a size or without, or one without elements of a
    size, that of a vector of nothing where none is given."""
    if not _has_positions(args):
        is_one = len(args) == 1 and not isinstance(args[0], int)
        args = (tuple(args[0] if is_one else args or (0,)),)
    return sparse_coo_tensor(*args, dtype=dtype, device=device)


@rule(COO, typed.constructed)
def _new(t: Any, data: Sequence[Any], options: Mapping[str, Any]) -> Any:
    return constructed(t.dtype, options.get("device", t.device), data)


class tensortype(type):
    """The class of the types. A COO tensor with a type's dtype is its instance.

    A call makes a tensor of positions and elements, with a size or without, or one without
    elements of a size.
    """

    dtype: DType

    def __call__(cls, *args: Any, device: Any = None) -> Any:
        given: tuple[str, ...] = ("shape",) if args else ()
        if _has_positions(args):
            given = ("indices", "values", "shape")[: len(args)]
        taken = ", ".join(given)
        warn(
            f"torch.sparse.SparseTensor({taken}{', *, device=' if given else ''}) is deprecated.  "
            f"Please use torch.sparse_coo_tensor({taken or '(0,)'}, dtype="
            f"{', device=' if given else ''})."
        )
        return constructed(cls.dtype, device, args)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, Handle)
            and instance.layout is layouts.sparse_coo
            and instance.dtype is cls.dtype
        )


def _type(name: str, dtype: DType) -> Any:
    return tensortype(f"{name}Tensor", (), {"dtype": dtype, "__module__": "torch.sparse"})


BFloat16Tensor = _type("BFloat16", dtypes.bfloat16)
ByteTensor = _type("Byte", dtypes.uint8)
CharTensor = _type("Char", dtypes.int8)
DoubleTensor = _type("Double", dtypes.float64)
FloatTensor = _type("Float", dtypes.float32)
HalfTensor = _type("Half", dtypes.float16)
IntTensor = _type("Int", dtypes.int32)
LongTensor = _type("Long", dtypes.int64)
ShortTensor = _type("Short", dtypes.int16)
