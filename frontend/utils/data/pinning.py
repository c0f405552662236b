"""torch.utils.data._utils.pin_memory: batches in memory that a GPU copies from by itself."""

from __future__ import annotations

from typing import Any

from ... import devices
from ...exchange import pinning

__all__ = ["pin_memory"]


def pin_memory(data: Any, device: Any = None) -> Any:
    """Pin the tensors of a batch, also inside tuples, lists and dicts. Without a GPU it is
    returned as it is."""
    return pinning.all_pinned(data) if devices.cuda_count() else data
