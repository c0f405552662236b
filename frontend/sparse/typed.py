"""torch.sparse.FloatTensor and its kin: PyTorch's older constructors of sparse tensors."""

from __future__ import annotations

from typing import Any

from tilewright.ir import dtype as dtypes

from ..recording import epoch
from .creating import sparse_coo_tensor


class _Type(type):
    """The class of the types. A sparse tensor of a type's dtype is its instance."""

    dtype: dtypes.DType

    def __call__(cls, *data: Any, device: Any = None) -> Any:
        """The tensor of (indices, values), of (indices, values, size), or of sizes alone."""
        if data and isinstance(data[0], epoch.tensor_type):
            return sparse_coo_tensor(*data, device=device)
        size = data[0] if len(data) == 1 and not isinstance(data[0], int) else data or (0,)
        return sparse_coo_tensor(tuple(size), dtype=cls.dtype, device=device)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (
            isinstance(instance, epoch.tensor_type)
            and instance.is_sparse
            and instance.dtype is cls.dtype
        )


def _type(name: str, dtype: dtypes.DType) -> Any:
    return _Type(name, (), {"dtype": dtype, "__module__": "torch.sparse"})


BFloat16Tensor = _type("BFloat16Tensor", dtypes.bfloat16)
ByteTensor = _type("ByteTensor", dtypes.uint8)
CharTensor = _type("CharTensor", dtypes.int8)
DoubleTensor = _type("DoubleTensor", dtypes.float64)
FloatTensor = _type("FloatTensor", dtypes.float32)
HalfTensor = _type("HalfTensor", dtypes.float16)
IntTensor = _type("IntTensor", dtypes.int32)
LongTensor = _type("LongTensor", dtypes.int64)
ShortTensor = _type("ShortTensor", dtypes.int16)
