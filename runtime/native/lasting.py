"""What stays until the process ends. Python frees its modules at its exit, while daemon threads
still run native code and read its memory."""

from __future__ import annotations

import ctypes
from typing import TypeVar

T = TypeVar("T")


def keep(thing: T) -> T:
    """`thing`, which is never freed from now on."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing
