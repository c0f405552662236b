"""torch.cuda: what scripts ask of it where there is no GPU. The CUDA runtime is not written yet."""

from __future__ import annotations

from typing import Any

from . import devices


def is_available() -> bool:
    """Whether a CUDA device can be used."""
    return devices.cuda_available()


def device_count() -> int:
    """How many CUDA devices can be used."""
    return int(is_available())


def manual_seed(seed: int) -> None:
    """Seeds are the same on every device: torch.manual_seed is what counts."""


manual_seed_all = manual_seed


def synchronize(device: Any = None) -> None:
    """Waits for a device; an error without one."""
    devices.check_cuda()


def current_device() -> int:
    """The number of the device in use; an error without one."""
    devices.check_cuda()
    return 0


def empty_cache() -> None:
    """Nothing is cached where there is no device."""


def __getattr__(name: str) -> Any:
    raise AttributeError(
        f"torch.cuda.{name} is not implemented: tilewright has no CUDA runtime yet"
    )
