"""torch.storage: the memory of tensors."""

from __future__ import annotations

import importlib
import io
from typing import Any

from .exchange.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(b: bytes) -> Any:
    """What PyTorch's storages leave in a plain pickle: the bytes of a file that `save` wrote."""
    load = importlib.import_module(f"{__package__}.serialization").load
    return load(io.BytesIO(b), weights_only=False)
