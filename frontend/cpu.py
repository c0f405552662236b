"""torch.cpu: the CPU as a device with one stream, as torch.cuda has them for GPUs."""

from __future__ import annotations

import os
import platform
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tilewright.ir.location import warn

from . import recording
from .amp import autocast_mode
from .backends import cpu

__all__ = [
    "Event",
    "Stream",
    "StreamContext",
    "amp",
    "current_device",
    "current_stream",
    "device_count",
    "get_capabilities",
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

    def record_event(self, event: Event | None = None) -> Event:
        return Event() if event is None else event

    def wait_event(self, event: Event) -> None:
        """Nothing to wait for: there is one order of work."""

    def wait_stream(self, stream: Stream) -> None:
        """Nothing to wait for: there is one order of work."""


class Event:
    """A point in the CPU's order of work."""

    def record(self, stream: Stream | None = None) -> None:
        """All that is recorded before is computed first."""

    def wait(self, stream: Stream | None = None) -> None:
        """Nothing to wait for: there is one order of work."""

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        synchronize()


class StreamContext(nullcontext[None]):
    """A block with the CPU's one stream."""

    def __init__(self, stream: Stream | None):
        super().__init__()
        self.stream = stream


def get_capabilities() -> dict[str, bool | int | str]:
    """What the processor can do, by the names of its flags."""
    found = cpu.instructions()
    able: dict[str, bool | int | str] = {name: flag in found for name, flag in _FLAGS.items()}
    return able | {"architecture": platform.machine(), "num_logical_cores": os.cpu_count() or 1}


_FLAGS = {name: name for name in "sse sse2 ssse3 sse4_1 sse4_2 avx avx2 f16c aes popcnt".split()}
_FLAGS |= {"sse3": "pni", "bmi": "bmi1", "bmi2": "bmi2", "fma3": "fma", "lzcnt": "abm"}
_FLAGS |= {f"avx512_{part}": f"avx512{part}" for part in "f bw cd dq vl ifma vbmi".split()}
_FLAGS |= {f"avx512_{part}": f"avx512_{part}" for part in "vnni bf16 fp16 vbmi2 bitalg".split()}
_FLAGS |= {f"amx_{part}": f"amx_{part}" for part in "tile int8 bf16 fp16".split()}

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
            warn(
                "`torch.cpu.amp.autocast(args...)` is deprecated. Please use "
                "`torch.amp.autocast('cpu', args...)` instead.",
                FutureWarning,
            )
            super().__init__("cpu", dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)
