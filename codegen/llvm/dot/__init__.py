"""Contractions as native code: packed operands, tiles in registers, epilogues on hot blocks."""

from .choice import check_speed
from .cut import Tiling, tiling
from .kernel import write

__all__ = ["Tiling", "check_speed", "tiling", "write"]
