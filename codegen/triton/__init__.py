"""The Triton emitter: a kernel as readable Python source of a @triton.jit function."""

from .emitted import Argument, Emitted
from .emitter import emit

__all__ = ["Argument", "Emitted", "emit"]
