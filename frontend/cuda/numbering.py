"""The number of the GPU that a caller means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir.location import at_user_line
from tilewright.runtime import devices as runtime

from .. import devices

if TYPE_CHECKING:
    from ..types import DeviceLike


def number_of(device: DeviceLike | None, exists: bool = True) -> int:
    """The number of the GPU that an int, a string or a torch.device names; None is the current one.

    exists: whether the GPU must be there. ValueError for a device that is no GPU.
    """
    if device is None:
        number = devices.current_cuda()
    elif isinstance(device, int):
        number = device
    else:
        found = devices.device(device)
        if found.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {found}{at_user_line()}")
        number = devices.current_cuda() if found.index is None else found.index
    if exists:
        devices.resolve(devices.device("cuda", number))
    return number


def runtime_of(device: DeviceLike | None) -> Any:
    """The runtime's device for the device that a caller names."""
    if device is None:  # the usual case: one that is in use
        found = runtime.known(f"cuda:{devices.current_cuda()}")
        if found is not None:
            return found
    return runtime.get(f"cuda:{number_of(device)}")
