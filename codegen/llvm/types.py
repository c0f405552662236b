"""LLVM's types: of values in registers and in memory, and constants as text."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.dtype import BOOL, FLOAT, NARROW, DType, float16, float64


class Ref(NamedTuple):
    """A value in the text: one of `type`, or a vector of `lanes` of them."""

    text: str
    type: str
    lanes: int = 1

    @property
    def full_type(self) -> str:
        return vector(self.type, self.lanes)

    @property
    def typed(self) -> str:
        return f"{self.full_type} {self.text}"


def vector(kind: str, lanes: int) -> str:
    return kind if lanes == 1 else f"<{lanes} x {kind}>"


def suffix(kind: str, lanes: int) -> str:
    """The spelling of a type in the names of intrinsics."""
    short = {"float": "f32", "double": "f64", "half": "f16"}.get(kind, kind)
    return short if lanes == 1 else f"v{lanes}{short}"


def computed(dtype: DType) -> str:
    """The type of a value in registers."""
    if dtype.category == FLOAT:
        return "double" if dtype is float64 else "float"
    return "i1" if dtype.category == BOOL else f"i{dtype.itemsize * 8}"


def stored(dtype: DType) -> str:
    """The type of an element in memory. Narrow floats move as their bits, except float16."""
    if dtype is float16:
        return "half"
    if dtype in NARROW:
        return f"i{dtype.itemsize * 8}"
    return "i8" if dtype.category == BOOL else computed(dtype)


def number(value: Any, kind: str) -> str:
    """A constant of a scalar type as text; floats by their bits, so that all are exact."""
    if kind == "i1":
        return "true" if value else "false"
    if kind == "float":
        # LLVM spells a float by the bits of a double with its value.
        with np.errstate(all="ignore"):
            single = np.float32(value)
        return _double_bits(float(single))
    if kind == "double":
        return _double_bits(float(value))
    bits = int(kind[1:])
    wrapped = int(value) & ((1 << bits) - 1)
    return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)


def _double_bits(value: float) -> str:
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


def constant(value: Any, kind: str, lanes: int = 1) -> Ref:
    text = number(value, kind)
    return Ref(text if lanes == 1 else f"splat ({kind} {text})", kind, lanes)


def integer(value: int) -> Ref:
    return constant(value, "i64")


def lane_numbers(lanes: int, kind: str = "i32") -> str:
    """0, 1, 2, …"""
    return "<" + ", ".join(f"{kind} {i}" for i in range(lanes)) + ">"
