"""Index expressions as instructions: sums of the terms that each level of loops adds."""

from __future__ import annotations

from tilewright.ir.dtype import SIGNED, DType, int32
from tilewright.ir.ops.unary import cast

from ..kernel import Apply, Value
from ..kernel.index import Atom, Axis, Data, FloorDiv, Index, Mod, walk
from .body import Body, Mask
from .checks import fail
from .code import Level
from .types import Ref, constant


def index_axes(body: Body, index: Index) -> frozenset[Axis]:
    return body.analysis.index_axes(index)


def level_of_index(body: Body, index: Index, mask: Mask | None) -> Level:
    depth = body.depth_of(index_axes(body, index))
    for atom in walk(index):
        if isinstance(atom, Data):
            depth = max(depth, body.level_of(atom.value, mask).depth)
            if mask is not None:
                depth = max(depth, mask.level)
    return body.code.levels[depth]


def position(body: Body, index: Index, mask: Mask | None, kind: str = "i64") -> Ref:
    """The value of an index, in lanes if they differ."""
    if not body.in_lanes(index_axes(body, index)):
        return _narrow(body, uniform(body, index, mask), kind, level_of_index(body, index, mask))
    rest, moving = split(body, index)
    level = level_of_index(body, index, mask)
    key = ("position", index, kind, mask.number if mask and body.analysis.index_reads(index) else 0)
    return body.code.once(
        key, level, lambda: _in_lanes(body, rest, moving, mask, kind, level, index)
    )


def split(body: Body, index: Index) -> tuple[Index, Index]:
    """The index as a part that all lanes share, and the rest."""
    assert body.vector is not None
    same: list[tuple[Atom, int]] = []
    moving: list[tuple[Atom, int]] = []
    for term in index.terms:
        one = Index((term,))
        (moving if body.in_lanes(index_axes(body, one)) else same).append(term)
    return Index(tuple(same), index.const), Index(tuple(moving))


def _narrow(body: Body, ref: Ref, kind: str, at: Level) -> Ref:
    if ref.type == kind:
        return ref
    if not ref.text.startswith("%"):
        return constant(int(ref.text), kind)
    return body.code.convert("trunc", ref, kind, at)


def _in_lanes(
    body: Body, rest: Index, moving: Index, mask: Mask | None, kind: str, at: Level, whole: Index
) -> Ref:
    code, vector = body.code, body.vector
    assert vector is not None
    base = uniform(body, rest, mask)
    total: Ref | None = None
    for atom, coefficient in moving.terms:
        factor = body.size(coefficient, ("coefficient", whole, atom))
        if isinstance(atom, Axis):
            # Lane 0's part belongs to the scalar sum.
            base = _plus(body, base, _times(body, vector.variable, factor, at), at)
            part = lane_steps(body, factor, kind)
        else:
            lanes = _atom_lanes(body, atom, mask, kind, at)
            wide = code.spread(_narrow_at(body, factor, kind), vector.lanes, at)
            part = lanes if coefficient == 1 else code.binary("mul", lanes, wide, at)
        total = part if total is None else code.binary("add", total, part, at)
    assert total is not None
    if base.text == "0":
        return total
    wide = code.spread(code.convert("trunc", base, kind, at), vector.lanes, at)
    return code.binary("add", total, wide, at)


def _narrow_at(body: Body, ref: Ref, kind: str) -> Ref:
    if ref.text.startswith("%"):
        entry = body.entry
        return body.code.once(
            ("narrow", ref, kind), entry, lambda: body.code.convert("trunc", ref, kind, entry)
        )
    return constant(int(ref.text), kind)


def lane_steps(body: Body, factor: Ref, kind: str) -> Ref:
    """0, factor, 2 factor, …"""
    code, lanes = body.code, body.lanes
    numbers = code.lanes_of(lanes, kind)
    if factor.text == "1":
        return numbers
    entry = body.entry

    def make() -> Ref:
        wide = code.spread(_narrow_at(body, factor, kind), lanes, entry)
        return code.binary("mul", numbers, wide, entry)

    return code.once(("lane steps", factor, kind), entry, make)


def _atom_lanes(
    body: Body, atom: FloorDiv | Mod | Data, mask: Mask | None, kind: str, at: Level
) -> Ref:
    code = body.code
    if isinstance(atom, Data):
        found = data(body, atom, mask)
        return code.convert("trunc" if found.type == "i64" else "sext", found, kind, at)
    assert body.vector is not None
    _, high = atom.index.bounds()
    divisor = body.size(atom.divisor, ("divisor", atom))
    if high < 1 << 31:
        # By the reciprocal: x + 1/2 is too far from a multiple for rounding to reach one.
        inner = position(body, atom.index, mask, "i32")
        entry = body.entry
        wide = code.once(
            ("reciprocal", divisor),
            entry,
            lambda: code.spread(
                code.let(
                    "fdiv double 1.0, " + code.convert("sitofp", divisor, "double", entry).text,
                    "double",
                    at=entry,
                ),
                body.lanes,
                entry,
            ),
        )
        exact = code.convert("sitofp", inner, "double", at)
        middle = code.binary("fadd", exact, constant(0.5, "double", body.lanes), at)
        quotient = code.convert("fptosi", code.binary("fmul", middle, wide, at), "i32", at)
        if isinstance(atom, Mod):
            narrow = code.spread(_narrow_at(body, divisor, "i32"), body.lanes, at)
            quotient = code.binary("sub", inner, code.binary("mul", quotient, narrow, at), at)
        return quotient if kind == "i32" else code.convert("zext", quotient, kind, at)
    inner = position(body, atom.index, mask, "i64")
    op = "udiv" if isinstance(atom, FloorDiv) else "urem"
    result = code.binary(op, inner, divisor, at)
    return code.convert("trunc", result, kind, at)


def uniform(body: Body, index: Index, mask: Mask | None) -> Ref:
    """The value of an index that all lanes share: each level adds its own terms."""
    code = body.code
    terms = sorted(
        ((level_of_index(body, Index((t,)), mask), t) for t in index.terms),
        key=lambda pair: pair[0].depth,
    )
    number = mask.number if mask and body.analysis.index_reads(index) else 0
    total = body.constant_of(index)
    for i, (level, (atom, coefficient)) in enumerate(terms):

        def make(
            level: Level = level,
            atom: Atom = atom,
            coefficient: int = coefficient,
            before: Ref = total,
        ) -> Ref:
            factor = body.size(coefficient, ("coefficient", index, atom))
            value = _atom_uniform(body, atom, mask, level)
            return _plus(body, before, _times(body, value, factor, level), level)

        key = ("uniform", tuple(t for _, t in terms[: i + 1]), index.const, number)
        total = code.once(key, level, make)
    return total


def _atom_uniform(body: Body, atom: object, mask: Mask | None, at: Level) -> Ref:
    if isinstance(atom, Axis):
        return body.axes[atom][1]
    if isinstance(atom, Data):
        return data(body, atom, mask)
    assert isinstance(atom, (FloorDiv, Mod))
    inner = uniform(body, atom.index, mask)
    divisor = body.size(atom.divisor, ("divisor", atom))
    return body.code.binary("udiv" if isinstance(atom, FloorDiv) else "urem", inner, divisor, at)


def _plus(body: Body, a: Ref, b: Ref, at: Level) -> Ref:
    if a.text == "0":
        return b
    return a if b.text == "0" else body.code.binary("add", a, b, at)


def _times(body: Body, a: Ref, b: Ref, at: Level) -> Ref:
    if b.text in ("0", "1"):
        return b if b.text == "0" else a
    return body.code.binary("mul", a, b, at)


def data(body: Body, atom: Data, mask: Mask | None) -> Ref:
    """A position that is data, checked if it has to be; out of range it counts as 0. int64, or
    int32 in lanes that were of that type."""
    value = body.evaluate(body, _short(atom), mask)
    if value.lanes == 1 or value.type != "i32":
        value = _extended(body, body.evaluate(body, atom.value, mask), atom.value.dtype)
    if atom.holds:
        return value
    level = level_of_index(body, Index(((atom, 1),)), mask)
    code = body.code

    def make() -> Ref:
        size = body.size(atom.size, ("data size", atom))
        size = size if value.type == "i64" else _narrow_at(body, size, "i32")
        fits = code.compare("icmp ult", value, size, level)
        bad = code.binary("xor", fits, constant(True, "i1", fits.lanes), level)
        fail(body, bad, code.convert("sext", value, "i64", level), atom.check, mask, level)
        return code.select(fits, value, constant(0, value.type, value.lanes), level)

    return code.once(("data", atom, mask.number if mask else 0), level, make)


def _short(atom: Data) -> Value:
    """A position before it was made int64, if it was int32."""
    value = atom.value
    if isinstance(value, Apply) and value.op is cast and value.args[0].dtype is int32:
        return value.args[0] if atom.size < 1 << 31 else value
    return value


def _extended(body: Body, ref: Ref, dtype: DType) -> Ref:
    """An integer as 64 bits."""
    if ref.type == "i64":
        return ref
    op = "sext" if dtype.category == SIGNED else "zext"
    return body.code.convert(op, ref, "i64")
