"""Math functions as LLVM IR, with stated error bounds, right at NaN, infinities and denormals."""

from . import circular, error, exponential, gamma, incomplete_gamma, logarithm
from .expression import call, has

__all__ = [
    "call",
    "circular",
    "error",
    "exponential",
    "gamma",
    "has",
    "incomplete_gamma",
    "logarithm",
]
