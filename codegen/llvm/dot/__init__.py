"""Contractions as native code: packed operands, tiles in registers, epilogues on hot blocks."""

from .cut import THIN, Tiling, tiling
from .kernel import write
from .operand import Operand

__all__ = ["THIN", "Operand", "Tiling", "tiling", "write"]
