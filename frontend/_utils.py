"""torch._utils: the names that pickles of tensors and a few packages use."""

from __future__ import annotations

from typing import Any

from .devices import current_cuda
from .devices import device as Device

__all__ = ["_element_size", "_get_device_index"]


def _element_size(dtype: Any) -> int:
    return int(dtype.itemsize)


def _get_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """The number of a GPU; -1 for the CPU where it is allowed."""
    if isinstance(device, int):
        return device
    if device is None:
        if optional:
            return current_cuda()
        raise ValueError("Expected a torch.device with a specified index or an integer, got None")
    kind = Device(device)
    if kind.type == "cpu" and allow_cpu:
        return -1
    if kind.type != "cuda":
        raise ValueError(f"Expected a non cpu device, but got: {kind}")
    if kind.index is None and not optional:
        raise ValueError(
            "Expected a torch.device with a specified index or an integer, but got: " + str(kind)
        )
    return current_cuda() if kind.index is None else kind.index
