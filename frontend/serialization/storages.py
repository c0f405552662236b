"""PyTorch's names of dtypes in files."""

from __future__ import annotations

from tilewright.ir import dtype as dtypes

# PyTorch's storage class of each dtype. Newer dtypes have none.
STORAGES = {
    "DoubleStorage": dtypes.float64, "FloatStorage": dtypes.float32, "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16, "LongStorage": dtypes.int64, "IntStorage": dtypes.int32,
    "ShortStorage": dtypes.int16, "CharStorage": dtypes.int8, "ByteStorage": dtypes.uint8,
    "BoolStorage": dtypes.bool_, "ComplexFloatStorage": dtypes.complex64,
    "ComplexDoubleStorage": dtypes.complex128,
}  # fmt: skip
STORAGE_OF = {dtype: name for name, dtype in STORAGES.items()}
QUANTIZED = {
    "Int8": dtypes.int8, "UInt8": dtypes.uint8, "Int32": dtypes.int32, "UInt4x2": dtypes.uint8,
    "UInt2x4": dtypes.uint8,
}  # fmt: skip
"""Storages of quantized tensors: their elements."""
