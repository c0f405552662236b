"""torch.multiprocessing: Python's own, with `spawn`.

Tensors in shared memory (`share_memory_`) stay shared with the processes that they go to, as
arguments or through queues. Other tensors go by value.
"""

from __future__ import annotations

import multiprocessing
from multiprocessing import *  # noqa: F403
from typing import Any

from .._tensor import Tensor
from ..exchange.sharing import tell_pickler
from ..nn.parameter import Parameter
from .spawning import (
    ProcessContext,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *multiprocessing.__all__,  # type: ignore[attr-defined]
    "ProcessContext",
    "ProcessExitedException",
    "ProcessRaisedException",
    "SpawnContext",
    "get_all_sharing_strategies",
    "get_sharing_strategy",
    "set_sharing_strategy",
    "spawn",
    "start_processes",
]

_strategy = "file_descriptor"

for _kind in (Tensor, Parameter):
    tell_pickler(_kind)


def get_all_sharing_strategies() -> set[str]:
    return {"file_descriptor", "file_system"}


def get_sharing_strategy() -> str:
    return _strategy


def set_sharing_strategy(new_strategy: str) -> None:
    """Choose how memory is shared. It changes nothing here: processes get descriptors."""
    global _strategy
    if new_strategy not in get_all_sharing_strategies():
        raise AssertionError(f"unknown sharing strategy {new_strategy!r}")
    _strategy = new_strategy


def __getattr__(name: str) -> Any:
    return getattr(multiprocessing, name)
