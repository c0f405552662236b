"""Conversions: between dtypes, and between registers and memory."""

from __future__ import annotations

from tilewright.ir.dtype import (
    BOOL,
    FLOAT,
    FLOAT8,
    NARROW,
    SIGNED,
    DType,
    bfloat16,
    float16,
    float32,
)

from . import float8
from .arms import on_demand
from .body import Body
from .code import Code, Level
from .types import Ref, computed, constant, stored


def from_memory(body: Body, ref: Ref, dtype: DType, at: Level) -> Ref:
    """A loaded element, in the type it is computed with."""
    return widened(body.code, ref, dtype, at)


def widened(code: Code, ref: Ref, dtype: DType, at: Level | None = None) -> Ref:
    if dtype is float16:
        return code.convert("fpext", ref, "float", at)
    if dtype is bfloat16:
        wide = code.convert("zext", ref, "i32", at)
        shifted = code.binary("shl", wide, constant(16, "i32", ref.lanes), at)
        return code.convert("bitcast", shifted, "float", at)
    if dtype in FLOAT8:
        return float8.widened(code, ref, dtype, at)
    if dtype.category == BOOL:
        return code.compare("icmp ne", ref, constant(0, "i8", ref.lanes), at)
    return ref


def to_memory(body: Body, ref: Ref, dtype: DType, at: Level) -> Ref:
    """A value in the form of memory, rounded to nearest even where the element is narrower."""
    code = body.code
    if dtype is float16:
        return code.convert("fptrunc", ref, "half", at)
    if dtype is bfloat16:
        return _bfloat_bits(body, ref, at)
    if dtype in FLOAT8:
        return float8.bits(code, ref, dtype, at)
    if dtype.category == BOOL:
        return code.convert("zext", ref, "i8", at)
    return ref


def _bfloat_bits(body: Body, ref: Ref, at: Level) -> Ref:
    code = body.code
    bits = code.convert("bitcast", _bfloat(body, ref, at), "i32", at)
    high = code.binary("lshr", bits, constant(16, "i32", ref.lanes), at)
    return code.convert("trunc", high, "i16", at)


def _bfloat(body: Body, ref: Ref, at: Level) -> Ref:
    """A float32 rounded to the digits of a bfloat16."""
    code, lanes = body.code, ref.lanes
    bits = code.convert("bitcast", ref, "i32", at)
    high = code.binary("lshr", bits, constant(16, "i32", lanes), at)
    odd = code.binary("and", high, constant(1, "i32", lanes), at)
    half = code.binary("add", odd, constant(0x7FFF, "i32", lanes), at)
    rounded = code.binary("add", bits, half, at)
    # A NaN whose digits overflow would become a number.
    nan = code.compare("fcmp uno", ref, ref, at)
    quiet = code.binary("or", bits, constant(0x400000, "i32", lanes), at)
    kept = code.select(nan, quiet, rounded, at)
    kept = code.binary("and", kept, constant(-0x10000, "i32", lanes), at)
    return code.convert("bitcast", kept, "float", at)


def rounded(body: Body, ref: Ref, dtype: DType, at: Level) -> Ref:
    """A float32 rounded to a narrow type and back."""
    if dtype is bfloat16:
        return _bfloat(body, ref, at)
    return from_memory(body, to_memory(body, ref, dtype, at), dtype, at)


def cast(body: Body, ref: Ref, source: DType, target: DType, at: Level) -> Ref:
    """A value in another dtype, as a C compiler for this machine converts it."""
    code = body.code
    kind = computed(target)
    if target in NARROW:
        return rounded(body, cast(body, ref, source, float32, at), target, at)
    if source.category == FLOAT:
        return _from_float(body, ref, target, kind, at)
    if target.category == BOOL:
        return code.compare("icmp ne", ref, constant(0, ref.type, ref.lanes), at)
    signed = source.category == SIGNED
    if target.category == FLOAT:
        if signed and ref.type == "i64":
            return _from_int64(body, ref, kind, at)
        return code.convert("sitofp" if signed else "uitofp", ref, kind, at)
    bits, wanted = int(ref.type[1:]), int(kind[1:])
    if wanted > bits:
        return code.convert("sext" if signed else "zext", ref, kind, at)
    return code.convert("trunc", ref, kind, at) if wanted < bits else ref


def _from_float(body: Body, ref: Ref, target: DType, kind: str, at: Level) -> Ref:
    code = body.code
    if target.category == FLOAT:
        if ref.type == kind:
            return ref
        return code.convert("fpext" if kind == "double" else "fptrunc", ref, kind, at)
    if target.category == BOOL:
        return code.compare("fcmp une", ref, constant(0.0, ref.type, ref.lanes), at)
    if kind == "i64" and target.category != SIGNED:
        return _to_uint64(body, ref, at)
    # Through 32 bits if they hold every value, else 64; the upper bits are cut off.
    through = "i64" if kind in ("i64",) or (kind == "i32" and target.category != SIGNED) else "i32"
    whole = _to_int64(body, ref, at) if through == "i64" else _whole(code, ref, through, at)
    return whole if kind == through else code.convert("trunc", whole, kind, at)


def _whole(code: Code, ref: Ref, kind: str, at: Level) -> Ref:
    """A float without its fraction. A result out of range is any number, but not undefined."""
    found = code.convert("fptosi", ref, kind, at)
    return code.let(f"freeze {found.typed}", kind, ref.lanes, at)


def _converts_lanes(body: Body, ref: Ref) -> bool:
    """Whether lanes of 64 bits are converted as one vector (or there is one)."""
    return ref.lanes == 1 or body.machine.vector_bytes >= 64


def _to_int64(body: Body, ref: Ref, at: Level) -> Ref:
    """A float as int64: by way of int32 where that holds all lanes, which is one instruction."""
    code = body.code
    if _converts_lanes(body, ref):
        return _whole(code, ref, "i64", at)
    size = code.intrinsic("fabs", [ref], at)
    far = code.compare("fcmp uge", size, constant(2.0**31, ref.type, ref.lanes), at)
    near = code.convert("sext", _whole(code, ref, "i32", at), "i64", at)
    return on_demand(code, far, lambda: _whole(code, ref, "i64", at), at, near)


def _from_int64(body: Body, ref: Ref, kind: str, at: Level) -> Ref:
    """An int64 as a float: by way of int32 where that holds all lanes."""
    code = body.code
    if _converts_lanes(body, ref):
        return code.convert("sitofp", ref, kind, at)
    short = code.convert("trunc", ref, "i32", at)
    far = code.compare("icmp ne", code.convert("sext", short, "i64", at), ref, at)
    near = code.convert("sitofp", short, kind, at)
    return on_demand(code, far, lambda: code.convert("sitofp", ref, kind, at), at, near)


def _to_uint64(body: Body, ref: Ref, at: Level) -> Ref:
    """A float as uint64. Negative numbers wrap around, as they do on today's machines."""
    code = body.code
    limit = constant(2.0**63, ref.type, ref.lanes)
    large = code.compare("fcmp oge", ref, limit, at)
    less = code.binary("fsub", ref, limit, at)
    low, high = (_whole(code, x, "i64", at) for x in (ref, less))
    high = code.binary("xor", high, constant(-(1 << 63), "i64", ref.lanes), at)
    return code.select(large, high, low, at)


def bitcast(body: Body, ref: Ref, source: DType, target: DType, at: Level) -> Ref:
    """The bits of an element of one dtype read as another of its size."""
    raw = to_memory(body, ref, source, at)
    raw = body.code.convert("bitcast", raw, stored(target), at)
    return from_memory(body, raw, target, at)
