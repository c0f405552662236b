"""torch.set_flush_denormal: whether the processor takes the smallest numbers for 0."""

from __future__ import annotations

import ctypes
import platform
import sys

__all__ = ["set_flush_denormal"]

_ENVIRONMENT = 32
"""The bytes of `fenv_t` in the C library of Linux on x86-64."""
_PLACE = 28
"""Where the control word of SSE (MXCSR) lies in it."""
_FLUSH = 0x8040
"""Its bits for results (flush to zero) and for operands (denormals are zero)."""


def set_flush_denormal(mode: bool) -> bool:
    """Choose whether denormal numbers are taken for 0 in this thread and those that it begins, as
    operands and as results. Returns whether the mode could be set: on Linux with x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return not mode
    library = ctypes.CDLL(None)
    if not hasattr(library, "fegetenv") or not platform.libc_ver()[0].startswith("glibc"):
        return not mode
    held = (ctypes.c_uint8 * _ENVIRONMENT)()
    if library.fegetenv(held) != 0:
        return not mode
    word = ctypes.c_uint32.from_buffer(held, _PLACE)
    word.value = word.value | _FLUSH if mode else word.value & ~_FLUSH
    return bool(library.fesetenv(held) == 0)
