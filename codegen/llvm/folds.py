"""The parts of reductions: start values, the combination of two values, the fold of lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.dtype import BOOL, FLOAT, SIGNED, DType
from tilewright.ir.op import Fold

from .body import Body
from .code import Level
from .types import Ref, computed, constant


def identity(op: Fold, dtype: DType) -> Any:
    """The start value of a fold."""
    if op in (Fold.SUM, Fold.ANY):
        return 0
    if op in (Fold.PROD, Fold.ALL):
        return 1
    low = op in (Fold.MAX, Fold.ARGMAX)
    if dtype.category == FLOAT:
        return -np.inf if low else np.inf
    if dtype.category == BOOL:
        return not low
    limits = np.iinfo(dtype.np)
    return limits.min if low else limits.max


def start(op: Fold, dtype: DType, lanes: int) -> Ref:
    return constant(identity(op, dtype), computed(dtype), lanes)


def combine(body: Body, op: Fold, dtype: DType, old: Ref, new: Ref, at: Level | None = None) -> Ref:
    """`old` combined with `new`. A NaN stays, whichever side it comes from."""
    code, floating = body.code, dtype.category == FLOAT
    if op is Fold.SUM:
        if dtype.category == BOOL:
            return code.binary("or", old, new, at)
        return code.binary("fadd contract" if floating else "add", old, new, at)
    if op is Fold.PROD:
        if dtype.category == BOOL:
            return code.binary("and", old, new, at)
        return code.binary("fmul" if floating else "mul", old, new, at)
    if op in (Fold.ANY, Fold.ALL):
        return code.binary("or" if op is Fold.ANY else "and", old, new, at)
    if dtype.category == FLOAT:
        # Two instructions on a processor whose maximum is its second operand if one is NaN.
        more = code.compare("fcmp ogt" if op is Fold.MAX else "fcmp olt", new, old, at)
        best = code.select(more, new, old, at)
        return code.select(code.compare("fcmp uno", new, new, at), new, best, at)
    return code.select(beats(body, op, dtype, new, old, at), new, old, at)


def beats(body: Body, op: Fold, dtype: DType, new: Ref, old: Ref, at: Level | None = None) -> Ref:
    """Whether `new` is the extremum rather than `old`; NaN is the extremum of both kinds."""
    code, low = body.code, op in (Fold.MAX, Fold.ARGMAX)
    if dtype.category != FLOAT:
        sign = "s" if dtype.category == SIGNED else "u"
        return code.compare(f"icmp {sign}{'gt' if low else 'lt'}", new, old, at)
    # False where both are NaN: the first one stays.
    more = code.compare("fcmp ugt" if low else "fcmp ult", new, old, at)
    number = code.compare("fcmp ord", old, old, at)
    return code.binary("and", more, number, at)


def extremum(body: Body, op: Fold, old: Ref, new: Ref) -> Ref:
    """The extremum of `new` and `old`, which is never NaN: one instruction."""
    more = body.code.compare("fcmp ogt" if op is Fold.MAX else "fcmp olt", new, old)
    return body.code.select(more, new, old)


def mark(body: Body, marks: Ref, new: Ref) -> Ref:
    """`marks`, with all bits set where `new` is NaN."""
    code = body.code
    return code.binary("or", marks, code.convert("sext", code.compare("fcmp uno", new, new), "i32"))


def with_nan(body: Body, op: Fold, dtype: DType, value: Ref, marks: Ref, join: bool) -> Ref:
    """The extremum, replaced by NaN where `marks` says so."""
    code = body.code
    if join:
        value = _joined(body, value, lambda a, b: extremum(body, op, a, b))
        if marks.lanes > 1:
            symbol = f"@llvm.vector.reduce.or.v{marks.lanes}i32"
            code.declare(f"declare i32 {symbol}({marks.full_type})")
            marks = code.let(f"call i32 {symbol}({marks.typed})", "i32")
    found = code.compare("icmp ne", marks, constant(0, "i32", marks.lanes))
    return code.select(found, constant(np.nan, value.type, value.lanes), value)


def pick(
    body: Body, op: Fold, dtype: DType, old: tuple[Ref, Ref], new: tuple[Ref, Ref], tie: bool
) -> tuple[Ref, Ref]:
    """The extremum of two (value, position). tie: whether the lower position wins between equals;
    else the old one wins."""
    code = body.code
    better = beats(body, op, dtype, new[0], old[0])
    if tie:
        same = code.compare("fcmp oeq" if dtype.category == FLOAT else "icmp eq", new[0], old[0])
        if dtype.category == FLOAT:
            both = code.binary(
                "and",
                code.compare("fcmp uno", new[0], new[0]),
                code.compare("fcmp uno", old[0], old[0]),
            )
            same = code.binary("or", same, both)
        earlier = code.compare("icmp slt", new[1], old[1])
        better = code.binary("or", better, code.binary("and", same, earlier))
    return code.select(better, new[0], old[0]), code.select(better, new[1], old[1])


def halves(body: Body, ref: Ref) -> tuple[Ref, Ref]:
    code, lanes = body.code, ref.lanes // 2
    out = []
    for first in (0, lanes):
        out.append(code.moved(ref, range(first, first + lanes)))
    return out[0], out[1]


def join_lanes(body: Body, op: Fold, dtype: DType, ref: Ref) -> Ref:
    """The fold of all lanes, as a tree."""
    return _joined(body, ref, lambda a, b: combine(body, op, dtype, a, b))


def _joined(body: Body, ref: Ref, fold: Callable[[Ref, Ref], Ref]) -> Ref:
    while ref.lanes > 1:
        if ref.lanes == 2:
            ref = fold(body.code.extract(ref, 0), body.code.extract(ref, 1))
        else:
            ref = fold(*halves(body, ref))
    return ref


def join_picks(body: Body, op: Fold, dtype: DType, found: tuple[Ref, Ref]) -> tuple[Ref, Ref]:
    while found[0].lanes > 1:
        if found[0].lanes == 2:
            sides = [tuple(body.code.extract(r, i) for r in found) for i in range(2)]
        else:
            (a, b), (i, j) = halves(body, found[0]), halves(body, found[1])
            sides = [(a, i), (b, j)]
        found = pick(body, op, dtype, sides[0], sides[1], tie=True)  # type: ignore[arg-type]
    return found
