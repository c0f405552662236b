"""What torch.xpu, torch.mps and torch.mtia share: kinds of devices that aren't here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from tilewright.ir.location import at_user_line

_ASKS = frozenset(
    (
        "Event Stream current_allocated_memory current_device current_stream device "
        "driver_allocated_memory get_device_capability get_device_name get_device_properties "
        "get_rng_state get_rng_state_all initial_seed is_current_stream_capturing "
        "max_memory_allocated max_memory_reserved mem_get_info memory_allocated memory_reserved "
        "memory_stats recommended_max_memory seed seed_all set_device set_rng_state "
        "set_rng_state_all set_stream stream"
    ).split()
)


def is_available() -> bool:
    return False


def is_initialized() -> bool:
    return False


def is_bf16_supported(including_emulation: bool = True) -> bool:
    return False


def device_count() -> int:
    return 0


def init() -> None:
    """There is no device to prepare."""


def synchronize(device: Any = None) -> None:
    """There is no device to wait for."""


def empty_cache() -> None:
    """There is no device with a cache."""


def reset_peak_memory_stats(device: Any = None) -> None:
    """There is no device with memory."""


def manual_seed(seed: int) -> None:
    """There is no device with a generator."""


def manual_seed_all(seed: int) -> None:
    """There is no device with a generator."""


def refusing(kind: str) -> Callable[[str], Any]:
    """The `__getattr__` of a kind's module: what asks a device is an error when it is called."""

    def find(name: str) -> Any:
        if name not in _ASKS:
            raise AttributeError(f"torch.{kind} has no {name!r}")

        def refuse(*args: Any, **options: Any) -> NoReturn:
            raise RuntimeError(f"torch.{kind}.{name}: no such device is here{at_user_line()}")

        return refuse

    return find
