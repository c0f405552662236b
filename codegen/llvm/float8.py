"""float8 in registers: float32, by way of float16 and its hardware conversion.

The rules are PyTorch's. Rounding is to nearest even; NaN has all bits set. Numbers too large for
float8_e4m3fn, which has no infinity, become its largest one; in float8_e5m2 they become infinite.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilewright.ir.dtype import DType, float8_e4m3fn, float8_e5m2

from .code import Code, Level
from .types import Ref, constant


@dataclass(frozen=True)
class _Format:
    """mantissa: its bits. bias: of the exponent. most: the number as which larger ones are
    rounded."""

    mantissa: int
    bias: int
    most: float


_FORMATS = {
    float8_e4m3fn: _Format(mantissa=3, bias=7, most=448.0),
    float8_e5m2: _Format(mantissa=2, bias=15, most=65536.0),
}


def widened(code: Code, ref: Ref, dtype: DType, at: Level | None = None) -> Ref:
    """The float32 of bits in memory."""
    form, lanes = _FORMATS[dtype], ref.lanes

    def word(op: str, a: Ref, number: int) -> Ref:
        return code.binary(op, a, constant(number, "i16", lanes), at)

    wide = code.convert("zext", ref, "i16", at)
    if form.bias == 15:  # float16's bias: these are the upper bits of a float16
        half = code.convert("bitcast", word("shl", wide, 8), "half", at)
        return code.convert("fpext", half, "float", at)
    size = word("and", wide, 0x7F)
    is_nan = code.compare("icmp eq", size, constant(0x7F, "i16", lanes), at)
    nan = constant(0x7E00, "i16", lanes)
    half = code.select(is_nan, nan, word("shl", size, 10 - form.mantissa), at)
    sign = word("shl", word("and", wide, 0x80), 8)
    half = code.convert("bitcast", code.binary("or", half, sign, at), "half", at)
    scale = constant(2.0 ** (15 - form.bias), "float", lanes)
    return code.binary("fmul", code.convert("fpext", half, "float", at), scale, at)


def bits(code: Code, ref: Ref, dtype: DType, at: Level | None = None) -> Ref:
    """The bits in memory of a float32."""
    form, lanes = _FORMATS[dtype], ref.lanes

    def word(op: str, a: Ref, number: int | Ref) -> Ref:
        b = constant(number, "i32", lanes) if isinstance(number, int) else number
        return code.binary(op, a, b, at)

    shift = 23 - form.mantissa
    given = code.convert("bitcast", ref, "i32", at)
    sign = word("and", word("lshr", given, 24), 0x80)
    size = word("and", given, 0x7FFFFFFF)
    is_nan = code.compare("icmp ugt", size, constant(0x7F800000, "i32", lanes), at)
    most = constant(_bits(form.most), "i32", lanes)
    size = code.intrinsic("umin", [size, most], at)
    odd = word("and", word("lshr", size, shift), 1)
    normal = word("lshr", word("add", size, word("add", odd, (1 << shift - 1) - 1)), shift)
    normal = word("sub", normal, 127 - form.bias << form.mantissa)
    # Near this number float32 has the spacing of the subnormal ones, so a sum rounds to them.
    spaced = 2.0 ** (24 - form.bias - form.mantissa)
    near = code.binary(
        "fadd", code.convert("bitcast", size, "float", at), constant(spaced, "float", lanes), at
    )
    tiny = word("sub", code.convert("bitcast", near, "i32", at), _bits(spaced))
    least = constant(_bits(2.0 ** (1 - form.bias)), "i32", lanes)
    out = code.select(code.compare("icmp ult", size, least, at), tiny, normal, at)
    out = code.select(is_nan, constant(0x7F, "i32", lanes), out, at)
    return code.convert("trunc", word("or", out, sign), "i8", at)


def _bits(value: float) -> int:
    return int(np.float32(value).view(np.uint32))
