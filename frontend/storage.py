"""torch.storage: the memory of tensors."""

from __future__ import annotations

import io
from typing import Any

from .exchange.storages import TypedStorage, UntypedStorage

__all__ = ["TypedStorage", "UntypedStorage"]


def _load_from_bytes(b: bytes) -> Any:
    """What PyTorch's storages leave in a plain pickle: the bytes of a file that `save` wrote."""
    from .serialization import load

    return load(io.BytesIO(b), weights_only=False)
