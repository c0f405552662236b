"""The NumPy emitter: the fallback that always works, and the oracle of the other emitters."""

from .emitter import Emitted, emit

__all__ = ["Emitted", "emit"]
