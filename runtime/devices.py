"""Devices by name, and switches of the environment."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tilewright.codegen.target import Target
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops import host

from . import debug
from .device import Device

if TYPE_CHECKING:
    from .cuda.device import Cuda

_devices: dict[str, Device] = {}
_rounding: dict[str, Any] = {"tf32": False, "tf32_convolutions": True}  # of CUDA devices
_halves: dict[str, Any] = {"rounds_halves": True}  # of all


def flag(name: str) -> bool:
    """Whether the environment variable `name` switches something on."""
    return os.environ.get(name, "").lower() not in ("", "0", "false", "off")


def _cpu() -> Device:
    from .cpu.native import make

    return make(os.environ.get("TW_CPU", "").lower())


def _interpret() -> Device:
    from .cpu.numpy import NumpyDevice
    from .interpret import InterpretDevice

    return InterpretDevice(others=NumpyDevice())


def _cuda(number: int) -> Cuda:
    from .cuda.device import Cuda

    # TW_EAGER=1 raises each op's errors in place, as PyTorch's own switch does.
    made = Cuda(number, blocking=flag("CUDA_LAUNCH_BLOCKING") or flag("TW_EAGER"))
    made.target = replace(made.target, **_rounding, **_halves)
    if os.environ.get("TW_DIGITS") == "0":  # threads multiply float32
        made.target = replace(made.target, digits=False)
    return made


def allow_tf32(**allowed: bool) -> None:
    """Set whether new plans on CUDA devices may round float32 in products (tf32) and in
    convolutions (tf32_convolutions)."""
    _rounding.update(allowed)
    for name, device in _devices.items():
        if name.startswith("cuda"):
            device.target = replace(device.target, **_rounding)


def round_halves(each: bool) -> None:
    """Set whether new plans round each result of a half type."""
    _halves["rounds_halves"] = each
    for device in _devices.values():
        device.target = switched(device.target)


def rounds_halves() -> bool:
    """Whether each result of a half type is rounded."""
    found: bool = _halves["rounds_halves"]
    return found


def switched(target: Target) -> Target:
    """`target` with the switches that apply to all devices."""
    return replace(target, **_halves)


def _meta() -> Device:
    from .meta import MetaDevice

    return MetaDevice()


_FACTORIES: dict[str, Callable[[], Device]] = {"cpu": _cpu, "interpret": _interpret}


def get(name: str) -> Device:
    """The device called `name`, such as `cpu` or `cuda:0`; RuntimeError if this machine has none
    of that name."""
    found = _devices.get(name)
    if found is None:
        kind, _, number = name.partition(":")
        if kind == "cuda" and has(name):
            found = _cuda(int(number))
        elif name == "meta":  # no place where a program could run
            found = _meta()
        elif name in _FACTORIES:
            found = _FACTORIES[name]()
            found.target = switched(found.target)
        else:
            known = ", ".join(names())
            raise RuntimeError(f"no device {name!r} on this machine: expected one of {known}")
        _devices[name] = found
    return found


def known(name: str) -> Device | None:
    """The device called `name`, if it is in use."""
    return _devices.get(name)


def driven(number: int) -> Cuda:
    """GPU `number` for programs compiled ahead of time, which need no Triton. RuntimeError if there
    is no such GPU."""
    from .cuda import driver

    name = f"cuda:{number}"
    found: Any = _devices.get(name)
    if found is None:
        reason = driver.reason_against(compiling=False)
        if reason is None and number >= driver.count():
            reason = f"there are {driver.count()}, counted from 0"
        if reason is not None:
            raise RuntimeError(f"no GPU {number}: {reason}")
        found = _devices[name] = _cuda(number)
    return found


def has(name: str) -> bool:
    """Whether this machine has a device called `name`."""
    if name in _devices or name in _FACTORIES:
        return True
    kind, _, number = name.partition(":")
    return kind == "cuda" and number.isdigit() and int(number) < cuda_count()


def offers(name: str, op: Op, operands: Sequence[Node]) -> bool:
    """Whether the library of a device computes a routine of operands. What is left to the host is
    said."""
    found = has(name) and get(name).offers(op, operands)
    if not found:
        debug.say(f"the host computes {op.name} of {name}")
    return found


host.offered = offers


def cuda_count() -> int:
    """The number of usable CUDA devices."""
    from .cuda import driver

    return 0 if driver.reason_against() else driver.count()


def names() -> list[str]:
    """The names of all devices of this machine."""
    return [*_FACTORIES, *(f"cuda:{i}" for i in range(cuda_count()))]


def started() -> list[str]:
    """The names of the devices in use."""
    return list(_devices)
