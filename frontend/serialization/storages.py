"""PyTorch's names of dtypes in files."""

from __future__ import annotations

from tilewright.ir import dtype as dtypes

from ..exchange import typed_storages

# PyTorch's storage class of each dtype. Newer dtypes have none.
STORAGES, STORAGE_OF = typed_storages.KINDS, typed_storages.NAME_OF
QUANTIZED = {
    "Int8": dtypes.int8, "UInt8": dtypes.uint8, "Int32": dtypes.int32, "UInt4x2": dtypes.uint8,
    "UInt2x4": dtypes.uint8,
}  # fmt: skip
"""Storages of quantized tensors: their elements."""
