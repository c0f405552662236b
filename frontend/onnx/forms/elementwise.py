"""Elementwise ops. ONNX broadcasts as NumPy does, so an expanded operand needs no Expand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, FLOAT, UNSIGNED, DType, int32, int64, uint8, uint64
from tilewright.ir.op import REGISTRY, Kind
from tilewright.ir.shape import broadcast

from ..align import Traced
from ..exporter import FORMS, Exporter, form


def operands(e: Exporter, t: Traced) -> list[str]:
    """The operands' names, without expansions that broadcasting makes unnecessary."""
    sources = list(t.operands)
    for i, operand in enumerate(sources):
        if operand.op.name != "expand":
            continue
        trial = [*sources[:i], operand.operands[0], *sources[i + 1 :]]
        fits = all(
            broadcast(*(o.nodes[r].shape for o in trial)) == node.shape
            for r, node in enumerate(t.nodes)
        )
        if fits:
            sources = trial
    return [e.value(s) for s in sources]


def _named(by_category: dict[int, str | None], default: str) -> Any:
    """The operator by the category of the operands' dtype; None for an identity."""

    def emit(e: Exporter, t: Traced, *_: str) -> str:
        op_type = by_category.get(t.operands[0].dtype.category, default)
        inputs = operands(e, t)
        return inputs[0] if op_type is None else e.add(op_type, *inputs)

    return emit


_BOOL_OR = {BOOL: "Or"}
_BOOL_AND = {BOOL: "And"}
_NOT_FLOAT: dict[int, str | None] = {0: None, 1: None, 2: None}

for _op, _by_category, _default in (
    (ops.add, _BOOL_OR, "Add"),
    (ops.mul, _BOOL_AND, "Mul"),
    (ops.maximum, _BOOL_OR, "Max"),
    (ops.minimum, _BOOL_AND, "Min"),
    (ops.bitwise_and, _BOOL_AND, "BitwiseAnd"),
    (ops.bitwise_or, _BOOL_OR, "BitwiseOr"),
    (ops.bitwise_xor, {BOOL: "Xor"}, "BitwiseXor"),
    (ops.bitwise_not, {BOOL: "Not"}, "BitwiseNot"),
    (ops.floor, _NOT_FLOAT, "Floor"),
    (ops.ceil, _NOT_FLOAT, "Ceil"),
    (ops.round, _NOT_FLOAT, "Round"),
    (ops.relu, {BOOL: None, UNSIGNED: None}, "Relu"),
    (ops.abs, {BOOL: None, UNSIGNED: None}, "Abs"),
):
    FORMS[_op] = _named(_by_category, _default)  # type: ignore[arg-type]


def _comparison(op_type: str, *, negate: bool = False) -> Any:
    def emit(e: Exporter, t: Traced, *_: str) -> str:
        inputs = operands(e, t)
        if t.operands[0].dtype.category == BOOL and op_type != "Equal":
            inputs = [e.cast(i, uint8) for i in inputs]
        out = e.add(op_type, *inputs)
        return e.add("Not", out) if negate else out

    return emit


FORMS[ops.ne] = _comparison("Equal", negate=True)
for _op in (ops.eq, ops.lt, ops.le, ops.gt, ops.ge):
    FORMS[_op] = _comparison(str(_op.onnx))


def _broadcasting(e: Exporter, t: Traced, *_: str) -> str:
    return e.add(str(t.op.onnx), *operands(e, t))


def _is_simple(op: Any) -> bool:
    """Whether the record's operator is the whole form, apart from expansions of operands."""
    return (
        op.kind is Kind.ELEMENTWISE
        and isinstance(op.onnx, str)
        and not op.params
        and op not in FORMS
        and op.name in _BROADCASTING
    )


_BROADCASTING = ("sub", "div", "where")
for _op in list(REGISTRY.values()):
    if _is_simple(_op):
        FORMS[_op] = _broadcasting


@form(ops.logical_not, ops.isnan, ops.isinf, ops.isfinite)
def _predicate(e: Exporter, t: Traced, x: str) -> str:
    dtype = t.operands[0].dtype
    if t.op is ops.logical_not:
        return e.add("Not", x if dtype.category == BOOL else e.cast(x, _bool()))
    if dtype.category != FLOAT:
        same = e.add("Equal", x, x)
        return same if t.op is ops.isfinite else e.add("Not", same)
    if t.op is ops.isnan:
        return e.add("IsNaN", x)
    infinite = e.add("IsInf", _for_isinf(e, x, dtype))
    if t.op is ops.isinf:
        return infinite
    return e.add("Not", e.add("Or", infinite, e.add("IsNaN", x)))


def _for_isinf(e: Exporter, x: str, dtype: DType) -> str:
    """`x` in a type that IsInf accepts: half types only from opset 20 on."""
    return x if dtype.itemsize > 2 or e.opset >= 20 else e.cast(x, _float32())


def _bool() -> DType:
    from tilewright.ir.dtype import bool_

    return bool_


def _float32() -> DType:
    from tilewright.ir.dtype import float32

    return float32


@form(ops.cast, ops.widened)
def _cast(e: Exporter, t: Traced, x: str) -> str:
    return e.cast(x, t.dtype)


@form(ops.pow)
def _pow(e: Exporter, t: Traced, *_: str) -> str:
    base, exponent = operands(e, t)
    if t.dtype in (int32, int64) or t.dtype.category == FLOAT:
        return e.add("Pow", base, exponent)
    return e.cast(e.add("Pow", e.cast(base, int64), e.cast(exponent, int64)), t.dtype)


# Functions without an ONNX operator, as formulas.


def _formula(op: Any) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register formula(e, number, *inputs). number(value) makes a constant of the operand's
    dtype."""

    def register(formula: Callable[..., str]) -> Callable[..., str]:
        def emit(e: Exporter, t: Traced, *_: str) -> str:
            return formula(e, lambda value: e.number(value, t.operands[0]), *operands(e, t))

        FORMS[op] = emit
        return formula

    return register


@_formula(ops.rsqrt)
def _rsqrt(e: Exporter, number: Any, x: str) -> str:
    return e.add("Reciprocal", e.add("Sqrt", x))


@_formula(ops.exp2)
def _exp2(e: Exporter, number: Any, x: str) -> str:
    return e.add("Pow", number(2), x)


@_formula(ops.log2)
def _log2(e: Exporter, number: Any, x: str) -> str:
    return e.add("Div", e.add("Log", x), number(np.log(2)))


@_formula(ops.log10)
def _log10(e: Exporter, number: Any, x: str) -> str:
    return e.add("Div", e.add("Log", x), number(np.log(10)))


@_formula(ops.erfc)
def _erfc(e: Exporter, number: Any, x: str) -> str:
    return e.add("Sub", number(1), e.add("Erf", x))


@_formula(ops.log1p)
def _log1p(e: Exporter, number: Any, x: str) -> str:
    # Kahan: log(u) x / (u - 1), with u = 1 + x rounded. The rounding error of u cancels.
    u = e.add("Add", x, number(1))
    rest = e.add("Sub", u, number(1))
    exact = e.add("Div", e.add("Mul", e.add("Log", u), x), rest)
    large = e.add("Equal", u, number(np.inf))
    plain = e.add("Where", large, u, exact)
    return e.add("Where", e.add("Equal", rest, number(0)), x, plain)


@_formula(ops.expm1)
def _expm1(e: Exporter, number: Any, x: str) -> str:
    # Kahan again: (u - 1) x / log(u), with u = exp(x) rounded.
    u = e.add("Exp", x)
    rest = e.add("Sub", u, number(1))
    exact = e.add("Div", e.add("Mul", rest, x), e.add("Log", u))
    # Far from zero log(u) is -inf or inf. There exp(x) - 1 is exact enough.
    far = e.add("Greater", e.add("Abs", x), number(0.5))
    small = e.add("Where", e.add("Equal", rest, number(0)), x, exact)
    return e.add("Where", far, rest, small)


@_formula(ops.sign)
def _sign(e: Exporter, number: Any, x: str) -> str:
    return e.add("Sign", x)


@form(ops.trunc)
def _trunc(e: Exporter, t: Traced, x: str) -> str:
    if t.dtype.category != FLOAT:
        return x
    below = e.add("Less", x, e.number(0, t))
    return e.add("Where", below, e.add("Ceil", x), e.add("Floor", x))


# Division with remainder.


@form(ops.fmod)
def _fmod(e: Exporter, t: Traced, *_: str) -> str:
    return e.add("Mod", *operands(e, t), fmod=1)


def _floored_mod(e: Exporter, dtype: DType, a: str, b: str) -> str:
    """The remainder with the divisor's sign."""
    if dtype.category != FLOAT:
        return e.add("Mod", a, b, fmod=0)
    zero = e.number(0, dtype)
    rest = e.add("Mod", a, b, fmod=1)
    crossed = e.add("Xor", e.add("Less", rest, zero), e.add("Less", b, zero))
    wrong = e.add("And", crossed, e.add("Not", e.add("Equal", rest, zero)))
    return e.add("Where", wrong, e.add("Add", rest, b), rest)


@form(ops.remainder)
def _remainder(e: Exporter, t: Traced, *_: str) -> str:
    return _floored_mod(e, t.dtype, *operands(e, t))


@form(ops.floor_divide)
def _floor_divide(e: Exporter, t: Traced, *_: str) -> str:
    a, b = operands(e, t)
    whole = e.add("Sub", a, _floored_mod(e, t.dtype, a, b))
    quotient = e.add("Div", whole, b)
    if t.dtype.category != FLOAT:
        return quotient
    nearest = e.add("Round", quotient)  # whole is a multiple of b, up to rounding
    zero = e.add("Equal", b, e.number(0, t))
    return e.add("Where", zero, e.add("Div", a, b), nearest)


@form(ops.gcd)
def _gcd(e: Exporter, t: Traced, *_: str) -> str:
    """Euclid's algorithm. Its longest ways start at neighbours in Fibonacci's sequence, whose
    members with n bits are fewer than 1.45 n."""
    a, b = operands(e, t)
    if t.dtype.is_signed:
        a, b = e.add("Abs", a), e.add("Abs", b)
    zero, one = e.number(0, t), e.number(1, t)
    for _step in range(int(1.45 * 8 * t.dtype.itemsize)):
        done = e.add("Equal", b, zero)
        rest = e.add("Mod", a, e.add("Where", done, one, b), fmod=0)
        a, b = e.add("Where", done, a, b), e.add("Where", done, zero, rest)
    return a


# Bits.


@form(ops.shift_left, ops.shift_right)
def _shift(e: Exporter, t: Traced, *_: str) -> str:
    x, by = operands(e, t)
    if t.dtype.category == UNSIGNED:
        direction = "LEFT" if t.op is ops.shift_left else "RIGHT"
        return e.add("BitShift", x, by, direction=direction)
    # BitShift takes only unsigned integers. For others multiply by a power of two, or divide
    # towards -inf.
    one = e.number(1, uint64)
    power = e.cast(e.add("BitShift", one, e.cast(by, uint64), direction="LEFT"), t.dtype)
    if t.op is ops.shift_left:
        return e.add("Mul", x, power)
    return e.add("Div", e.add("Sub", x, e.add("Mod", x, power, fmod=0)), power)


# Signs.


def _is_negative(e: Exporter, x: str, dtype: DType) -> str:
    """Whether x is below zero, or -0.0."""
    zero = e.number(0, dtype)
    below = e.add("Less", x, zero)
    minus_zero = e.add("And", e.add("Equal", x, zero), e.add("Less", e.add("Reciprocal", x), zero))
    return e.add("Or", below, minus_zero)


@form(ops.copysign)
def _copysign(e: Exporter, t: Traced, *_: str) -> str:
    a, b = operands(e, t)
    size = e.add("Abs", a)
    return e.add("Where", _is_negative(e, b, t.dtype), e.add("Neg", size), size)


@form(ops.atan2)
def _atan2(e: Exporter, t: Traced, *_: str) -> str:
    y, x = operands(e, t)
    pi, zero = e.number(np.pi, t), e.number(0, t)
    angle = e.add("Atan", e.add("Div", y, x))
    half_turn = e.add("Where", _is_negative(e, y, t.dtype), e.number(-np.pi, t), pi)
    turned = e.add("Where", e.add("Less", x, zero), e.add("Add", angle, half_turn), angle)
    quarter = [e.number(sign * np.pi / 2, t) for sign in (-1, 1)]
    upright = e.add("Where", e.add("Less", y, zero), *quarter)
    turned = e.add("Where", e.add("Equal", x, zero), upright, turned)
    # 0 / 0, where the sign of x decides the direction.
    origin = e.add("And", e.add("Equal", x, zero), e.add("Equal", y, zero))
    flat = e.add("Where", _is_negative(e, x, t.dtype), half_turn, y)
    return e.add("Where", origin, flat, turned)
