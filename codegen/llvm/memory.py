"""Loads and stores: neighbouring elements as vectors, others lane by lane.

Where lanes run past the end of an axis, only those that exist touch memory. A whole vector is moved
by plain instructions and a partial one under a mask; which one it is, is decided by one branch for
the loads of a step and one for its stores, so that the arithmetic between them is there once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..index import Data, Index, walk
from ..kernel import Buffer, Load, Store
from .body import Body, Mask
from .code import Level
from .convert import from_memory, to_memory
from .positions import lane_steps, level_of_index, position, split, uniform
from .types import Ref, constant, stored, suffix, vector


def stride_of(body: Body, offset: Index) -> int | None:
    """How far apart neighbouring lanes lie; None if that isn't the same everywhere."""
    assert body.vector is not None
    _, moving = split(body, offset)
    if not moving.terms:
        return 0
    if len(moving.terms) == 1 and moving.terms[0][0] == body.vector.axis:
        return moving.terms[0][1]
    return None


def load(body: Body, value: Load, mask: Mask | None) -> Ref:
    at = body.level_of(value, mask)
    return from_memory(body, _load(body, value, mask, at), value.buffer.dtype, at)


def _load(body: Body, value: Load, mask: Mask | None, at: Level) -> Ref:
    if not body.in_lanes(body.analysis.axes(value)):
        return _scalar(body, value.buffer, value.offset, mask, at)
    if stride_of(body, value.offset) != 1:
        return _gather(body, value.buffer, value.offset, mask, at)
    (address,) = _addresses(body, [(value.buffer, value.offset)], mask, at)
    if mask is not None:
        return masked_load(body, address, value.buffer, body.and_lanes(mask, at), at)
    return _neighbours(body, [(address, value.buffer)], at)[0]


def load_together(body: Body, values: Sequence[Load], at: Level) -> list[Ref]:
    """The elements of several loads of neighbours, none of them guarded."""
    places = [(v.buffer, v.offset) for v in values]
    addresses = _addresses(body, places, None, at)
    raw = _neighbours(body, [(a, v.buffer) for a, v in zip(addresses, values)], at)
    return [from_memory(body, r, v.buffer.dtype, at) for r, v in zip(raw, values)]


def is_plain(body: Body, value: Load) -> bool:
    """Whether lanes read neighbours at a place that no data decides."""
    return (
        body.in_lanes(body.analysis.axes(value))
        and not any(isinstance(a, Data) for a in walk(value.offset))
        and stride_of(body, value.offset) == 1
    )


def _addresses(
    body: Body, places: Sequence[tuple[Buffer, Index]], mask: Mask | None, at: Level
) -> list[Ref]:
    """Where lane 0 reads or writes."""
    code, vector_ = body.code, body.vector
    assert vector_ is not None
    out = []
    for buffer, offset in places:
        kind = stored(buffer.dtype)
        rest, _ = split(body, offset)
        start = uniform(body, rest, mask)
        base = body.buffer(buffer)
        if start.text != "0":
            # Added where the row is known, so that the loop has one counter for all of them.
            level = level_of_index(body, rest, mask)
            base = _row(body, base, start, kind, level)
        text = f"getelementptr {kind}, ptr {base.text}, i64 {vector_.variable.text}"
        out.append(code.let(text, "ptr", at=at))
    return out


def _row(body: Body, base: Ref, start: Ref, kind: str, at: Level) -> Ref:
    text = f"getelementptr {kind}, ptr {base.text}, i64 {start.text}"
    return body.code.once(("row", base, start), at, lambda: body.code.let(text, "ptr", at=at))


def _two_ways(
    body: Body, at: Level, whole: Callable[[], list[Ref]], part: Callable[[], list[Ref]]
) -> list[Ref]:
    """`whole` where every lane exists, else `part`; both may only add instructions to `at`."""
    code, vector_ = body.code, body.vector
    assert vector_ is not None
    labels = [code.fresh_label(s) for s in ("whole", "part", "moved")]
    code.add(f"br i1 {vector_.full.text}, label %{labels[0]}, label %{labels[1]}, !prof !1", at)
    found = []
    for label, make in zip(labels, (whole, part)):
        at.block(label)
        found.append(make())
        code.add(f"br label %{labels[2]}", at)
    at.block(labels[2])
    out = []
    for a, b in zip(*found):
        text = f"phi {a.full_type} [ {a.text}, %{labels[0]} ], [ {b.text}, %{labels[1]} ]"
        out.append(code.let(text, a.type, a.lanes, at))
    return out


def _neighbours(body: Body, places: Sequence[tuple[Ref, Buffer]], at: Level) -> list[Ref]:
    lanes = body.lane_mask(at)
    return _two_ways(
        body,
        at,
        lambda: [_vector_load(body, a, b, at) for a, b in places],
        lambda: [masked_load(body, a, b, lanes, at) for a, b in places],
    )


def _vector_load(body: Body, address: Ref, buffer: Buffer, at: Level) -> Ref:
    kind = stored(buffer.dtype)
    full = vector(kind, body.lanes)
    text = f"load {full}, ptr {address.text}, align {buffer.dtype.itemsize}"
    return body.code.let(text, kind, body.lanes, at)


def masked_load(body: Body, address: Ref, buffer: Buffer, mask: Ref, at: Level) -> Ref:
    """Zero in lanes that the mask leaves out."""
    code, kind, lanes = body.code, stored(buffer.dtype), body.lanes
    mask = code.spread(mask, lanes, at)
    full = vector(kind, lanes)
    symbol = f"@llvm.masked.load.{suffix(kind, lanes)}.p0"
    code.declare(f"declare {full} {symbol}(ptr, i32, <{lanes} x i1>, {full})")
    text = (
        f"call {full} {symbol}(ptr {address.text}, i32 {buffer.dtype.itemsize}, {mask.typed}, "
        f"{full} zeroinitializer)"
    )
    return code.let(text, kind, lanes, at)


def _scalar(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    code, kind = body.code, stored(buffer.dtype)
    where = uniform(body, offset, mask)
    if mask is not None:
        # Outside of the guard, the first element is read instead and dropped.
        where = code.select(body.some_lane(mask, at), where, constant(0, "i64"), at)
    base = body.buffer(buffer)
    place = code.let(f"getelementptr {kind}, ptr {base.text}, i64 {where.text}", "ptr", at=at)
    return code.let(f"load {kind}, ptr {place.text}, align {buffer.dtype.itemsize}", kind, at=at)


def _gather(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    code, kind, lanes = body.code, stored(buffer.dtype), body.lanes
    addresses = _scattered(body, buffer, offset, mask, at)
    full, pointers = vector(kind, lanes), f"<{lanes} x ptr>"
    symbol = f"@llvm.masked.gather.{suffix(kind, lanes)}.v{lanes}p0"
    code.declare(f"declare {full} {symbol}({pointers}, i32, <{lanes} x i1>, {full})")
    text = (
        f"call {full} {symbol}({pointers} {addresses.text}, i32 {buffer.dtype.itemsize}, "
        f"<{lanes} x i1> splat (i1 true), {full} zeroinitializer)"
    )
    return code.let(text, kind, lanes, at)


def _scattered(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    """An address for each lane; lanes that don't exist get that of one that may be read."""
    code, kind, lanes = body.code, stored(buffer.dtype), body.lanes
    live = body.and_lanes(mask, at)
    stride = stride_of(body, offset)
    base = body.buffer(buffer)
    if stride is not None and mask is None and not body.analysis.index_reads(offset):
        # From lane 0's address on, and that lane always exists.
        rest, moving = split(body, offset)
        start = uniform(body, rest, None)
        (atom, coefficient), *_ = moving.terms or ((None, 0),)
        factor = body.size(coefficient, ("coefficient", offset, atom))
        assert body.vector is not None
        moved = code.binary("mul", body.vector.variable, factor, at)
        first = code.binary("add", start, moved, at)
        base = code.let(f"getelementptr {kind}, ptr {base.text}, i64 {first.text}", "ptr", at=at)
        offsets = lane_steps(body, factor, "i64")
    else:
        offsets = code.spread(position(body, offset, mask), lanes, at)
    offsets = code.select(live, offsets, constant(0, "i64", lanes), at)
    text = f"getelementptr {kind}, ptr {base.text}, {offsets.typed}"
    return code.let(text, "ptr", lanes, at)


def store(body: Body, stores: Sequence[tuple[Store, Ref]]) -> None:
    """Writes values, computed before, at the innermost level."""
    at, code = body.code.level, body.code
    neighbours = []
    for each, value in stores:
        buffer = each.buffer
        axes = body.analysis.index_axes(each.offset)
        if not body.in_lanes(axes):
            assert value.lanes == 1, "lanes would write to one place"
            _store_scalar(body, buffer, each.offset, to_memory(body, value, buffer.dtype, at), at)
            continue
        raw = to_memory(body, code.spread(value, body.lanes, at), buffer.dtype, at)
        if stride_of(body, each.offset) != 1:
            _scatter(body, buffer, each.offset, raw, at)
            continue
        (address,) = _addresses(body, [(buffer, each.offset)], None, at)
        neighbours.append((address, buffer, raw))
    if neighbours:
        lanes = body.lane_mask(at)
        _two_ways(
            body,
            at,
            lambda: _vector_stores(body, neighbours, at),
            lambda: _masked_stores(body, neighbours, lanes, at),
        )


def _store_scalar(body: Body, buffer: Buffer, offset: Index, raw: Ref, at: Level) -> None:
    base = body.buffer(buffer)
    where = uniform(body, offset, None)
    text = f"getelementptr {raw.type}, ptr {base.text}, i64 {where.text}"
    place = body.code.let(text, "ptr", at=at)
    body.code.add(f"store {raw.typed}, ptr {place.text}, align {buffer.dtype.itemsize}", at)


Neighbours = list[tuple[Ref, Buffer, Ref]]


def _vector_stores(body: Body, each: Neighbours, at: Level) -> list[Ref]:
    for address, buffer, raw in each:
        align = buffer.dtype.itemsize
        body.code.add(f"store {raw.typed}, ptr {address.text}, align {align}", at)
    return []


def _masked_stores(body: Body, each: Neighbours, mask: Ref, at: Level) -> list[Ref]:
    code, lanes = body.code, body.lanes
    for address, buffer, raw in each:
        symbol = f"@llvm.masked.store.{suffix(raw.type, lanes)}.p0"
        code.declare(f"declare void {symbol}({raw.full_type}, ptr, i32, <{lanes} x i1>)")
        align = buffer.dtype.itemsize
        given = f"{raw.typed}, ptr {address.text}, i32 {align}, {mask.typed}"
        code.add(f"call void {symbol}({given})", at)
    return []


def _scatter(body: Body, buffer: Buffer, offset: Index, raw: Ref, at: Level) -> None:
    addresses = _scattered(body, buffer, offset, None, at)
    if body.machine.vector_bytes >= 64:  # which has an instruction for it
        _masked_scatter(body, buffer, addresses, raw, at)
        return
    _two_ways(
        body,
        at,
        lambda: _lane_stores(body, buffer, addresses, raw, at),
        lambda: _masked_scatter(body, buffer, addresses, raw, at),
    )


def _lane_stores(body: Body, buffer: Buffer, addresses: Ref, raw: Ref, at: Level) -> list[Ref]:
    code = body.code
    for lane in range(body.lanes):
        value, place = (
            code.let(f"extractelement {ref.typed}, i64 {lane}", ref.type, at=at)
            for ref in (raw, addresses)
        )
        code.add(f"store {value.typed}, ptr {place.text}, align {buffer.dtype.itemsize}", at)
    return []


def _masked_scatter(body: Body, buffer: Buffer, addresses: Ref, raw: Ref, at: Level) -> list[Ref]:
    code, lanes = body.code, body.lanes
    mask = body.lane_mask(at)
    pointers = f"<{lanes} x ptr>"
    symbol = f"@llvm.masked.scatter.{suffix(raw.type, lanes)}.v{lanes}p0"
    code.declare(f"declare void {symbol}({raw.full_type}, {pointers}, i32, <{lanes} x i1>)")
    code.add(
        f"call void {symbol}({raw.typed}, {addresses.typed}, i32 {buffer.dtype.itemsize}, "
        f"{mask.typed})",
        at,
    )
    return []


def update(body: Body, each: Store, value: Ref) -> None:
    """Combines a value into memory. Lanes never meet."""
    from .folds import combine

    at, buffer = body.code.level, each.buffer
    lanes_differ = body.in_lanes(body.analysis.index_axes(each.offset))
    if each.mode != "set":
        if lanes_differ:
            if stride_of(body, each.offset) == 1:
                (address,) = _addresses(body, [(buffer, each.offset)], None, at)
                (old,) = _neighbours(body, [(address, buffer)], at)
            else:
                old = _gather(body, buffer, each.offset, None, at)
        else:
            old = _scalar(body, buffer, each.offset, None, at)
        old = from_memory(body, old, buffer.dtype, at)
        op = {"add": "sum", "mul": "prod"}.get(each.mode or "", each.mode or "")
        value = combine(body, op, buffer.dtype, old, value, at)
    store(body, [(each, value)])
