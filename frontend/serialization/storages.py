"""PyTorch's names of dtypes in files."""

from __future__ import annotations

from ..exchange import typed_storages
from ..functions.quantized import QuantizedDType, qint8, qint32, quint2x4, quint4x2, quint8

# PyTorch's storage class of each dtype. Newer dtypes have none.
STORAGES, STORAGE_OF = typed_storages.KINDS, typed_storages.NAME_OF
QUANTIZED: dict[str, QuantizedDType] = {
    "QInt8Storage": qint8,
    "QUInt8Storage": quint8,
    "QInt32Storage": qint32,
    "QUInt4x2Storage": quint4x2,
    "QUInt2x4Storage": quint2x4,
}
"""Storages of quantized tensors: their types."""
