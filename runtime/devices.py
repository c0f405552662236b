"""The devices there are, by name, and the environment's switches."""

from __future__ import annotations

import os
from collections.abc import Callable

from .device import Device

_devices: dict[str, Device] = {}


def flag(name: str) -> bool:
    """Whether the environment switches `name` on."""
    return os.environ.get(name, "").lower() not in ("", "0", "false", "off")


def _cpu() -> Device:
    from .llvm import make

    return make(os.environ.get("TW_CPU", "").lower())


def _interpret() -> Device:
    from .interpret import InterpretDevice

    return InterpretDevice()


_FACTORIES: dict[str, Callable[[], Device]] = {"cpu": _cpu, "interpret": _interpret}


def get(name: str) -> Device:
    """The device called `name`; RuntimeError if this machine has none of that name."""
    found = _devices.get(name)
    if found is None:
        factory = _FACTORIES.get(name)
        if factory is None:
            known = ", ".join(_FACTORIES)
            raise RuntimeError(f"no device {name!r} on this machine: expected one of {known}")
        found = _devices[name] = factory()
    return found


def has(name: str) -> bool:
    """Whether this machine has a device called `name`."""
    return name in _devices or name in _FACTORIES
