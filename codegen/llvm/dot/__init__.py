"""Contractions as native code: packed operands, tiles in registers, epilogues while they are hot."""

from .kernel import write
from .tiling import Tiling, tiling

__all__ = ["Tiling", "tiling", "write"]
