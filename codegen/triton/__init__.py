"""The Triton emitter: a kernel as readable Python source of a @triton.jit function."""

from .emit import emit
from .emitted import Argument, Emitted

__all__ = ["Argument", "Emitted", "emit"]
