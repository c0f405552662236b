"""Contractions as native code: packed operands, tiles in registers, epilogues while they are hot."""
