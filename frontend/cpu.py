"""torch.cpu: the CPU as a device with one stream, as torch.cuda has them for GPUs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from . import recording
from .amp import autocast_mode

__all__ = [
    "Stream",
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "is_available",
    "is_initialized",
    "set_device",
    "stream",
    "synchronize",
]


class Stream:
    """The CPU's order of work, of which there is one."""

    def __init__(self, priority: int = -1):
        pass

    def synchronize(self) -> None:
        synchronize()

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: there is one order of work."""


_stream = Stream()


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def device_count() -> int:
    return 1


def current_device() -> str:
    return "cpu"


def set_device(device: Any) -> None:
    """There is one CPU."""


def synchronize(device: Any = None) -> None:
    """Compute all that is recorded."""
    recording.end_step()


def current_stream(device: Any = None) -> Stream:
    return _stream


def stream(stream: Stream) -> AbstractContextManager[None]:
    return nullcontext()


class amp:
    """torch.cpu.amp, by its older names."""

    class autocast(autocast_mode.autocast):
        def __init__(self, enabled: bool = True, dtype: Any = None, cache_enabled: bool = True):
            super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
