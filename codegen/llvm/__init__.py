"""The LLVM emitter: kernels as native code for CPUs."""

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
