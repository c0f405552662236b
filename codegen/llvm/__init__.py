"""The LLVM emitter: kernels as native code for CPUs.

The emitter's modules are imported when one of its names is first used: what a first step runs comes
from the pack, and needs none of them.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .choice import check_speed
    from .emitter import Emitted, emit
    from .form import form_of
    from .machine import CannotLower, Machine
    from .schedule import DEFAULT, Schedule

__all__ = [
    "DEFAULT",
    "CannotLower",
    "Emitted",
    "Machine",
    "Schedule",
    "check_speed",
    "emit",
    "form_of",
]

_HOMES = {
    "DEFAULT": "schedule",
    "CannotLower": "machine",
    "Emitted": "emitter",
    "Machine": "machine",
    "Schedule": "schedule",
    "check_speed": "choice",
    "emit": "emitter",
    "form_of": "form",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
    return value
