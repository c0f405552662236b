"""Element types and PyTorch's type promotion."""

from __future__ import annotations

import functools
import math
from typing import Any

import ml_dtypes
import numpy as np

BOOL, UNSIGNED, SIGNED, FLOAT, COMPLEX = range(5)  # categories, in the order of promotion
_MLIR_PREFIX = {BOOL: "i", UNSIGNED: "ui", SIGNED: "i", FLOAT: "f"}


class DType:
    """An element type. Compared by identity; printed as PyTorch prints it (`torch.float32`)."""

    __slots__ = ("category", "itemsize", "mlir", "name", "np", "short")

    def __init__(self, name: str, short: str, category: int, np_type: Any, mlir: str = ""):
        self.name = name
        self.short = short
        self.category = category
        self.np = np.dtype(np_type)
        self.itemsize: int = self.np.itemsize
        self.mlir = mlir or f"{_MLIR_PREFIX[category]}{self.itemsize * 8}"

    @property
    def abbr(self) -> str:
        """PyTorch's short name: f32."""
        return {"f8e4m3": "f8e4m3fn", "bool": "b8", "b": "b8"}.get(self.short, self.short)

    @property
    def kind(self) -> str:
        """PyTorch's name of the dtype in its errors: Float."""
        return _KINDS.get(self.name, self.name.capitalize())

    @property
    def is_floating_point(self) -> bool:
        return self.category == FLOAT

    @property
    def is_complex(self) -> bool:
        return self.category == COMPLEX

    @property
    def is_differentiable(self) -> bool:
        """Whether gradients flow through values of this dtype."""
        return self.category >= FLOAT

    @property
    def is_signed(self) -> bool:
        return self.category >= SIGNED

    def to_complex(self) -> DType:
        """The complex dtype whose parts hold values of this dtype."""
        return self if self.category == COMPLEX else complex_of(self)

    def to_real(self) -> DType:
        """The dtype of the real and imaginary parts; a real dtype itself."""
        return real_of(self)

    def __repr__(self) -> str:
        return f"torch.{self.name}"

    def __reduce__(self) -> tuple[Any, ...]:
        return named, (self.name,)


_KINDS = {
    "uint8": "Byte", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
    "int8": "Char", "int16": "Short", "int32": "Int", "int64": "Long",
    "float16": "Half", "bfloat16": "BFloat16", "float32": "Float", "float64": "Double",
    "complex32": "ComplexHalf", "complex64": "ComplexFloat", "complex128": "ComplexDouble",
}  # fmt: skip

bool_ = DType("bool", "b8", BOOL, np.bool_, mlir="i1")
uint8 = DType("uint8", "u8", UNSIGNED, np.uint8)
uint16 = DType("uint16", "u16", UNSIGNED, np.uint16)
uint32 = DType("uint32", "u32", UNSIGNED, np.uint32)
uint64 = DType("uint64", "u64", UNSIGNED, np.uint64)
int8 = DType("int8", "i8", SIGNED, np.int8)
int16 = DType("int16", "i16", SIGNED, np.int16)
int32 = DType("int32", "i32", SIGNED, np.int32)
int64 = DType("int64", "i64", SIGNED, np.int64)
float16 = DType("float16", "f16", FLOAT, np.float16)
bfloat16 = DType("bfloat16", "bf16", FLOAT, ml_dtypes.bfloat16, mlir="bf16")
float8_e4m3fn = DType("float8_e4m3fn", "f8e4m3", FLOAT, ml_dtypes.float8_e4m3fn, mlir="f8E4M3FN")
float8_e5m2 = DType("float8_e5m2", "f8e5m2", FLOAT, ml_dtypes.float8_e5m2, mlir="f8E5M2")
float32 = DType("float32", "f32", FLOAT, np.float32)
float64 = DType("float64", "f64", FLOAT, np.float64)
# NumPy has no complex numbers of half size: their arrays are records of two halves.
complex32 = DType(
    "complex32", "c32", COMPLEX, [("real", np.float16), ("imag", np.float16)], mlir="complex<f16>"
)
complex64 = DType("complex64", "c64", COMPLEX, np.complex64, mlir="complex<f32>")
complex128 = DType("complex128", "c128", COMPLEX, np.complex128, mlir="complex<f64>")

FLOAT8 = (float8_e4m3fn, float8_e5m2)
"""Types that are held, moved, converted and multiplied as matrices; others take a wider one."""
HALVES = (float16, bfloat16)
"""Types whose ops are computed in float32; each result is rounded."""
NARROW = (*HALVES, *FLOAT8)
"""Floats that exist in memory only; arithmetic with them runs in float32."""
ALL = (
    bool_, uint8, uint16, uint32, uint64, int8, int16, int32, int64,
    *FLOAT8, float16, bfloat16, float32, float64, complex32, complex64, complex128,
)  # fmt: skip
_BY_NAME = {d.name: d for d in ALL} | {d.short: d for d in ALL}
_BY_NUMPY = {d.np: d for d in ALL}
BY_MLIR = {d.mlir: d for d in ALL}


def named(name: str) -> DType:
    """The dtype called `name`, long (`float32`) or short (`f32`)."""
    return _BY_NAME[name]


def real_of(dtype: DType) -> DType:
    """The dtype of the parts of a complex dtype; any other dtype itself."""
    return _PARTS.get(dtype, dtype)


def complex_of(dtype: DType) -> DType:
    """The complex dtype beside a real one: complex64 if its parts hold no other dtype."""
    if dtype.category == COMPLEX:
        return dtype
    return {float16: complex32, float64: complex128}.get(dtype, complex64)


_PARTS = {complex32: float16, complex64: float32, complex128: float64}


def is_added(dtype: np.dtype[Any]) -> bool:
    """Whether ml_dtypes adds this NumPy dtype: few functions of NumPy take such. (`isbuiltin` is 1
    for NumPy's own dtypes, or 0 if they came from another process.)"""
    return dtype.isbuiltin == 2


def from_numpy(np_dtype: Any) -> DType:
    """The dtype of a NumPy dtype; TypeError if there is none."""
    found = _BY_NUMPY.get(np.dtype(np_dtype).newbyteorder("="))
    if found is None:
        names = ", ".join(d.name for d in ALL)
        raise TypeError(f"can't convert a NumPy array of dtype {np_dtype}: expected one of {names}")
    return found


@functools.cache
def promote(a: DType, b: DType) -> DType:
    """The dtype that holds both, by PyTorch's lattice (torch.promote_types)."""
    if a is b:
        return a
    if a in FLOAT8 or b in FLOAT8:
        raise RuntimeError(
            f"Promotion for Float8 Types is not supported, attempted to promote {a} and {b}: "
            "convert one of them with .to()"
        )
    if a.category > b.category or (a.category == b.category and a.itemsize >= b.itemsize):
        high, low = a, b
    else:
        high, low = b, a
    if high.category == COMPLEX:
        if low.category != COMPLEX:
            return high if low.category < FLOAT else promote(high, complex_of(low))
        return high
    if high.category == FLOAT:
        both_half = {a, b} == {float16, bfloat16}
        return float32 if both_half else high
    if high.category == SIGNED and low.category == UNSIGNED and high.itemsize <= low.itemsize:
        wider = {1: int16, 2: int32, 4: int64}
        if low.itemsize not in wider:
            raise RuntimeError(f"promotion of {a} and {b} is not supported: no dtype holds both")
        return wider[low.itemsize]
    return high


def of_scalar(value: Any, default_float: DType = float32) -> DType:
    """The dtype PyTorch gives a Python scalar: bool, int64, the default float or its complex."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return default_float
    if isinstance(value, (complex, np.complexfloating)):
        return complex_of(default_float)
    raise TypeError(
        f"expected a bool, int, float or complex, got {type(value).__name__}: {value!r}"
    )


def lowest(dtype: DType) -> float:
    """What no value of a real dtype is below: -inf, False or the least integer."""
    if dtype.category == BOOL:
        return False
    return -math.inf if dtype.is_floating_point else int(np.iinfo(dtype.np).min)


def highest(dtype: DType) -> float:
    """What no value of a real dtype is above: inf, True or the largest integer."""
    if dtype.category == BOOL:
        return True
    return math.inf if dtype.is_floating_point else int(np.iinfo(dtype.np).max)


def accumulator(dtype: DType) -> DType:
    """The dtype in which sums and products of `dtype` are accumulated."""
    return float32 if dtype in NARROW else complex64 if dtype is complex32 else dtype
