"""Complex numbers as pairs of real ones, for targets that have no complex numbers."""

from .split import split_complex

__all__ = ["split_complex"]
