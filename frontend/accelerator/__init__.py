"""torch.accelerator: the kind of device that a program computes on; here always CUDA."""

from __future__ import annotations

from typing import Any

from .. import cuda
from ..cuda import current_device as current_device_idx
from ..cuda import current_device as current_device_index
from ..cuda import (
    current_stream,
    device_count,
    empty_cache,
    get_device_capability,
    is_available,
    max_memory_allocated,
    max_memory_reserved,
    memory_allocated,
    memory_reserved,
    memory_stats,
    reset_accumulated_memory_stats,
    reset_peak_memory_stats,
    set_stream,
    synchronize,
)
from ..cuda import mem_get_info as get_memory_info
from ..cuda import set_device as set_device_idx
from ..cuda import set_device as set_device_index
from ..devices import device
from .graphs import Graph

__all__ = [
    "Graph",
    "current_device_idx",
    "empty_host_cache",
    "get_device_capability",
    "reset_accumulated_memory_stats",
    "set_device_idx",
    "current_accelerator",
    "current_device_index",
    "current_stream",
    "device_count",
    "device_index",
    "empty_cache",
    "get_memory_info",
    "is_available",
    "max_memory_allocated",
    "max_memory_reserved",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "reset_peak_memory_stats",
    "set_device_index",
    "set_stream",
    "synchronize",
]


def empty_host_cache() -> None:
    """Pinned memory that nobody uses is given back by itself."""


def current_accelerator(check_available: bool = False) -> device | None:
    """The accelerator's device; None if there is none."""
    return device("cuda") if is_available() else None


class device_index(cuda.device):
    """Let "cuda" mean the device of this number inside the block; None changes nothing."""

    def __init__(self, device: int | None):
        super().__init__(device)

    def __enter__(self) -> Any:
        super().__enter__()
        return self
