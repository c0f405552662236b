"""Python values as MLIR attributes, so that reading gives the very value that was printed."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import BY_MLIR, COMPLEX, FLOAT, SIGNED, DType
from .syntax import NONE, Attribute, Float, Integer, ScalarType, ShapedType, Type

_UI64 = ScalarType("ui64")


def to_attribute(value: Any) -> Attribute:
    """A bool, int, float, string, dtype, None, or a tuple of such, as an attribute.

    An int is an i64, or a ui64 where it only fits that; a float is an f64; a dtype is its type;
    None is the type `none`. Raises TypeError for other values.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, np.integer)):
        if -(1 << 63) <= value < 1 << 64:
            return Integer(int(value)) if value < 1 << 63 else Integer(int(value), _UI64)
        raise TypeError(f"expected an int of 64 bits, got {value}")
    if isinstance(value, (float, np.floating)):
        return Float.of(float(value))
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        return tuple(map(to_attribute, value))
    if isinstance(value, DType):
        return scalar_type(value)
    if value is None:
        return NONE
    raise TypeError(
        f"expected a bool, int, float, string, dtype, None or a tuple of them for an attribute, "
        f"got {type(value).__name__}: {value!r}"
    )


def from_attribute(attribute: Attribute) -> Any:
    """The value `to_attribute` was given; TypeError for attributes it never gives."""
    if isinstance(attribute, (bool, str)):
        return attribute
    if isinstance(attribute, Integer):
        return attribute.value
    if isinstance(attribute, Float):
        return float(attribute.number)
    if isinstance(attribute, tuple):
        return tuple(map(from_attribute, attribute))
    if attribute == NONE:
        return None
    if isinstance(attribute, ScalarType) and attribute.name in BY_MLIR:
        return BY_MLIR[attribute.name]
    shown = attribute if isinstance(attribute, ScalarType) else type(attribute).__name__
    raise TypeError(f"expected a bool, number, string, array, dtype or none, got {shown}")


def scalar_type(dtype: DType) -> ScalarType:
    return ScalarType(dtype.mlir)


def tensor_type(shape: tuple[int, ...], dtype: DType) -> ShapedType:
    return ShapedType("tensor", tuple(shape), scalar_type(dtype))


def from_tensor_type(type: Type) -> tuple[tuple[int, ...], DType]:
    """(shape, dtype) of a tensor whose sizes are known; TypeError if `type` is not one."""
    if isinstance(type, ShapedType) and type.kind == "tensor":
        sizes = tuple(size for size in type.shape if size is not None)
        element = BY_MLIR.get(type.element.name) if isinstance(type.element, ScalarType) else None
        if element is not None and len(sizes) == len(type.shape):
            return sizes, element
    known = ", ".join(BY_MLIR)
    raise TypeError(f"expected a tensor with known sizes, of one of {known}; got {type}")


def constant_attribute(bits: int, dtype: DType) -> Attribute:
    """The 0-d constant of `dtype` with these bits: `0.5 : f32`, `-3 : i32`, `true`."""
    if dtype.category == FLOAT:
        return Float(bits, scalar_type(dtype))
    if dtype.category == COMPLEX:  # the parts, the real one in the low bits
        part, width = scalar_type(dtype.to_real()), dtype.itemsize * 4
        return Float(bits & ((1 << width) - 1), part), Float(bits >> width, part)
    if dtype.mlir == "i1":
        return bool(bits)
    width = dtype.itemsize * 8
    negative = dtype.category == SIGNED and bits >> (width - 1)
    return Integer(bits - (1 << width) if negative else bits, scalar_type(dtype))


def from_constant_attribute(attribute: Attribute) -> tuple[int, DType]:
    """(bits, dtype) of a number; TypeError if it is none of our dtypes."""
    if isinstance(attribute, bool):
        return int(attribute), BY_MLIR["i1"]
    if isinstance(attribute, tuple) and [type(a) for a in attribute] == [Float, Float]:
        real, imag = (from_constant_attribute(a) for a in attribute)
        dtype = real[1].to_complex()
        return real[0] | imag[0] << dtype.itemsize * 4, dtype
    if isinstance(attribute, (Integer, Float)) and attribute.type.name in BY_MLIR:
        dtype = BY_MLIR[attribute.type.name]
        if isinstance(attribute, Float):
            return attribute.bits, dtype
        return attribute.value & ((1 << dtype.itemsize * 8) - 1), dtype
    raise TypeError(f"expected a number of one of {', '.join(BY_MLIR)}")
