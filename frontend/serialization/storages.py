"""PyTorch's names of dtypes in files."""

from __future__ import annotations

from ..exchange import typed_storages

# PyTorch's storage class of each dtype. Newer dtypes have none.
STORAGES, STORAGE_OF = typed_storages.KINDS, typed_storages.NAME_OF
