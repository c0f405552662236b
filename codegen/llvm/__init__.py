"""The LLVM emitter: kernels as native code for CPUs."""

from .emitter import Emitted, emit
from .form import form_of
from .machine import CannotLower, Machine

__all__ = ["CannotLower", "Emitted", "Machine", "emit", "form_of"]
