"""Loads and stores: neighbouring elements as vectors, others lane by lane.

Where lanes run past the end of an axis, only lanes that exist touch memory. Plain instructions move
a whole vector, masked ones a partial vector. One branch decides between them for all loads of a
step, and one for all its stores, so the arithmetic in between is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ..kernel import Buffer, Load, Store
from ..kernel.index import Data, Index, walk
from .arms import on_demand
from .body import Body, Mask
from .code import Level
from .convert import from_memory, to_memory
from .form import STRIDES
from .positions import lane_steps, level_of_index, position, split, uniform
from .types import Ref, constant, stored, suffix, vector

LINE = 64
"""Bytes of a cache line."""


def stride_of(body: Body, offset: Index) -> int | None:
    """The distance of neighbouring lanes in memory; None if it isn't the same everywhere."""
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
        return scalar(body, value.buffer, value.offset, mask, at)
    if mask is not None and mask.held is at and not body.analysis.index_reads(value.offset):
        mask = None
    stride = stride_of(body, value.offset)
    beside = body.analysis.beside(value) if stride == 2 else None
    if beside is not None and not body.analysis.index_reads(value.offset):
        return _alternating(body, *beside, mask, at)[beside.index(value)]
    if stride in STRIDES and stride != 1 and not body.analysis.index_reads(value.offset):
        return _strided(body, value, stride, mask, at)
    if stride != 1:
        return gather(body, value.buffer, value.offset, mask, at)
    (address,) = addresses_of(body, [(value.buffer, value.offset)], mask, at)
    if mask is None:
        return neighbours(body, [(address, value.buffer)], at)[0]
    if mask.ref.lanes == 1:
        return _if_all(body, mask.ref, [(address, value.buffer)], at)
    return masked_load(body, address, value.buffer, body.and_lanes(mask, at), at)


def load_together(body: Body, values: Sequence[Load], at: Level) -> list[Ref]:
    """The elements of several loads of neighbours, none of them guarded."""
    places = [(v.buffer, v.offset) for v in values]
    addresses = addresses_of(body, places, None, at)
    raw = neighbours(body, [(a, v.buffer) for a, v in zip(addresses, values)], at)
    return [from_memory(body, r, v.buffer.dtype, at) for r, v in zip(raw, values)]


def is_plain(body: Body, value: Load) -> bool:
    """Whether lanes read neighbours, at a place that doesn't depend on data."""
    return (
        body.in_lanes(body.analysis.axes(value))
        and not any(isinstance(a, Data) for a in walk(value.offset))
        and stride_of(body, value.offset) == 1
    )


def fetch_next_row(body: Body, values: Sequence[Load]) -> None:
    """Prefetches the elements that these loads of neighbours will read in the next row. An address
    past the end does no harm."""
    outer = body.form.outer
    if not outer or body.vector is None:
        return
    code, at = body.code, body.code.level
    for value in values:
        step = value.offset.coefficient(outer[-1])
        if step == 0 or not is_plain(body, value):
            continue
        (address,) = addresses_of(body, [(value.buffer, value.offset)], None, at)
        kind = stored(value.buffer.dtype)
        row = body.size(step, ("coefficient", value.offset, outer[-1]))
        for line in range(0, body.lanes * value.buffer.dtype.itemsize, LINE):
            ahead = code.binary("add", row, constant(line // value.buffer.dtype.itemsize, "i64"))
            text = f"getelementptr {kind}, ptr {address.text}, i64 {ahead.text}"
            place = code.let(text, "ptr", at=at)
            code.prefetch(place, level=at)


def addresses_of(
    body: Body, places: Sequence[tuple[Buffer, Index]], mask: Mask | None, at: Level
) -> list[Ref]:
    """The addresses that lane 0 reads or writes."""
    code, vector_ = body.code, body.vector
    assert vector_ is not None
    out = []
    for buffer, offset in places:
        kind = stored(buffer.dtype)
        rest, _ = split(body, offset)
        start = uniform(body, rest, mask)
        base = body.buffer(buffer)
        if start.text != "0":
            # Added on the level that knows the row, so that all addresses share the loop's counter.
            level = level_of_index(body, rest, mask)
            base = _row(body, base, start, kind, level)
        text = f"getelementptr {kind}, ptr {base.text}, i64 {vector_.variable.text}"
        out.append(code.let(text, "ptr", at=at))
    return out


def _row(body: Body, base: Ref, start: Ref, kind: str, at: Level) -> Ref:
    text = f"getelementptr {kind}, ptr {base.text}, i64 {start.text}"
    return body.code.once(("row", base, start), at, lambda: body.code.let(text, "ptr", at=at))


def _two_ways(
    body: Body,
    at: Level,
    whole: Callable[[], list[Ref]],
    part: Callable[[], list[Ref]],
    every: Ref | None = None,
) -> list[Ref]:
    """The results of `whole` if every lane exists (and `every` holds), else of `part`. Both may
    only add instructions to `at`."""
    code, vector_ = body.code, body.vector
    assert vector_ is not None
    if vector_.whole and every is None:
        return whole()
    full = vector_.full if every is None else every
    labels = [code.fresh_label(s) for s in ("whole", "part", "moved")]
    code.add(f"br i1 {full.text}, label %{labels[0]}, label %{labels[1]}, !prof !1", at)
    found, ends = [], []
    known = at.known
    for label, make in zip(labels, (whole, part)):
        at.block(label)
        at.known = dict(known)  # values of a branch are known in it alone
        found.append(make())
        ends.append(at.label)
        code.add(f"br label %{labels[2]}", at)
    at.known = known
    at.block(labels[2])
    out = []
    for a, b in zip(*found):
        text = f"phi {a.full_type} [ {a.text}, %{ends[0]} ], [ {b.text}, %{ends[1]} ]"
        out.append(code.let(text, a.type, a.lanes, at))
    return out


def neighbours(body: Body, places: Sequence[tuple[Ref, Buffer]], at: Level) -> list[Ref]:
    def part() -> list[Ref]:
        lanes = body.lane_mask(at)
        return [masked_load(body, a, b, lanes, at) for a, b in places]

    return _two_ways(body, at, lambda: [vector_load(body, a, b, at) for a, b in places], part)


def _if_all(body: Body, condition: Ref, places: Sequence[tuple[Ref, Buffer]], at: Level) -> Ref:
    """The neighbours at a place, or zeros where a condition of all lanes doesn't hold. A branch,
    since a masked load reads memory also where it drops all of it."""
    code = body.code
    labels = [code.fresh_label(s) for s in ("held", "met")]
    before, known = at.label, at.known
    code.add(f"br i1 {condition.text}, label %{labels[0]}, label %{labels[1]}", at)
    at.block(labels[0])
    at.known = dict(known)
    (found,) = neighbours(body, places, at)
    end, at.known = at.label, known
    code.add(f"br label %{labels[1]}", at)
    at.block(labels[1])
    text = f"phi {found.full_type} [ zeroinitializer, %{before} ], [ {found.text}, %{end} ]"
    return code.let(text, found.type, found.lanes, at)


def existing(body: Body, values: Sequence[tuple[Ref, Ref]]) -> list[Ref]:
    """The first of each pair; the second in lanes that don't exist."""
    code, at = body.code, body.code.level

    def part() -> list[Ref]:
        lanes = body.lane_mask(at)
        return [code.select(lanes, a, b, at) for a, b in values]

    return _two_ways(body, at, lambda: [a for a, _ in values], part)


def vector_load(body: Body, address: Ref, buffer: Buffer, at: Level) -> Ref:
    kind = stored(buffer.dtype)
    full = vector(kind, body.lanes)
    text = f"load {full}, ptr {address.text}, align {buffer.dtype.itemsize}"
    return body.code.let(text, kind, body.lanes, at)


def masked_load(body: Body, address: Ref, buffer: Buffer, mask: Ref, at: Level) -> Ref:
    """A load that gives zero in lanes that the mask leaves out."""
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


def scalar(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    code, kind = body.code, stored(buffer.dtype)
    where = uniform(body, offset, mask)
    if mask is not None:
        # Outside of the guard, the first element is read instead and dropped.
        where = code.select(body.some_lane(mask, at), where, constant(0, "i64"), at)
    base = body.buffer(buffer)
    place = code.let(f"getelementptr {kind}, ptr {base.text}, i64 {where.text}", "ptr", at=at)
    return code.let(f"load {kind}, ptr {place.text}, align {buffer.dtype.itemsize}", kind, at=at)


def _strided(body: Body, value: Load, stride: int, mask: Mask | None, at: Level) -> Ref:
    """Loads lanes a few elements apart by as many loads of neighbours, none of which reads beyond
    the lanes' own elements. One by one where a lane doesn't exist or is masked."""
    code, lanes, buffer = body.code, body.lanes, value.buffer
    kind = stored(buffer.dtype)
    start = _first_lane(body, value.offset, stride, mask, at)

    def whole() -> list[Ref]:
        found: Ref | None = None
        for begin, taken in pieces(lanes, stride):
            piece = _piece(body, buffer, start, begin, at)
            picks = (lanes + taken[i] if i in taken else i for i in range(lanes))
            order = ", ".join(f"i32 {i}" for i in picks)
            before = f"{piece.full_type} poison" if found is None else found.typed
            text = f"shufflevector {before}, {piece.typed}, <{lanes} x i32> <{order}>"
            found = code.let(text, kind, lanes, at)
        assert found is not None
        return [found]

    part = lambda: [_some(body, buffer, value.offset, mask, at)]  # noqa: E731
    return _two_ways(body, at, whole, part, _every(body, mask, at))[0]


def _some(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    """Lanes that a mask lets through, one by one, if there are any."""
    make = partial(gather, body, buffer, offset, mask, at)
    return make() if mask is None else on_demand(body.code, body.and_lanes(mask, at), make, at)


def _every(body: Body, mask: Mask | None, at: Level) -> Ref | None:
    """Whether a mask lets all lanes through; None if there is none."""
    if mask is None:
        return None
    code, lanes = body.code, body.lanes
    live = body.and_lanes(mask, at)
    bits = code.let(f"bitcast {live.typed} to i{lanes}", f"i{lanes}", at=at)
    return code.compare("icmp eq", bits, constant(-1, f"i{lanes}"), at)


def _first_lane(body: Body, offset: Index, stride: int, mask: Mask | None, at: Level) -> Ref:
    """The place of lane 0, for lanes `stride` apart."""
    assert body.vector is not None
    rest, _ = split(body, offset)
    moved = body.code.binary("mul", body.vector.variable, constant(stride, "i64"), at)
    return body.code.binary("add", uniform(body, rest, mask), moved, at)


def _address(body: Body, buffer: Buffer, place: Ref, at: Level) -> Ref:
    base = body.buffer(buffer)
    text = f"getelementptr {stored(buffer.dtype)}, ptr {base.text}, i64 {place.text}"
    return body.code.let(text, "ptr", at=at)


def _piece(body: Body, buffer: Buffer, start: Ref, begin: int, at: Level) -> Ref:
    place = body.code.binary("add", start, constant(begin, "i64"), at)
    return vector_load(body, _address(body, buffer, place, at), buffer, at)


def _alternating(body: Body, first: Load, second: Load, mask: Mask | None, at: Level) -> list[Ref]:
    """Two loads whose lanes alternate in memory."""
    code, lanes, buffer = body.code, body.lanes, first.buffer

    def whole() -> list[Ref]:
        start = _first_lane(body, first.offset, 2, mask, at)
        a, b = (_piece(body, buffer, start, begin, at) for begin in (0, lanes))
        both = []
        for i in range(2):
            order = ", ".join(f"i32 {k}" for k in range(i, 2 * lanes, 2))
            text = f"shufflevector {a.typed}, {b.typed}, <{lanes} x i32> <{order}>"
            both.append(code.let(text, a.type, lanes, at))
        return both

    def part() -> list[Ref]:
        return [_some(body, buffer, each.offset, mask, at) for each in (first, second)]

    key = ("alternating", id(first), mask.number if mask else 0)
    both = lambda: _two_ways(body, at, whole, part, _every(body, mask, at))  # noqa: E731
    return code.once(key, at, both)


def pieces(lanes: int, stride: int) -> Iterator[tuple[int, dict[int, int]]]:
    """Vectors that hold the elements of lanes `stride` apart: (the vector's begin, counted from
    lane 0's element; lane -> place in the vector)."""
    if stride < 0:
        yield 1 - lanes, {i: lanes - 1 - i for i in range(lanes)}
        return
    for k in range(stride):
        begin = k * lanes if k < stride - 1 else (lanes - 1) * (stride - 1)
        yield begin, {i: i * stride - begin for i in range(lanes) if i * stride // lanes == k}


def gather(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    code, kind, lanes = body.code, stored(buffer.dtype), body.lanes
    base, offsets = _offsets(body, buffer, offset, mask, at)
    if body.machine.vector_bytes == 32 and body.analysis.index_reads(offset):
        return _one_by_one(body, kind, base, offsets, at)
    addresses = code.let(
        f"getelementptr {kind}, ptr {base.text}, {offsets.typed}", "ptr", lanes, at
    )
    full, pointers = vector(kind, lanes), f"<{lanes} x ptr>"
    symbol = f"@llvm.masked.gather.{suffix(kind, lanes)}.v{lanes}p0"
    code.declare(f"declare {full} {symbol}({pointers}, i32, <{lanes} x i1>, {full})")
    text = (
        f"call {full} {symbol}({pointers} {addresses.text}, i32 {buffer.dtype.itemsize}, "
        f"<{lanes} x i1> splat (i1 true), {full} zeroinitializer)"
    )
    return code.let(text, kind, lanes, at)


def _one_by_one(body: Body, kind: str, base: Ref, offsets: Ref, at: Level) -> Ref:
    """Elements that are loaded one by one, as processors without AVX-512 do themselves. Offsets go
    by way of memory, from where a load extends each: that takes half as long as from lanes."""
    code, lanes = body.code, offsets.lanes
    key = ("offsets", offsets.full_type)
    table = code.once(
        key,
        body.entry,
        lambda: code.let(f"alloca {offsets.full_type}, align 64", "ptr", at=body.entry),
    )
    code.add(f"store {offsets.typed}, {table.typed}, align 64", at)
    found = Ref("poison", kind, lanes)
    for lane in range(lanes):
        cell = code.let(f"getelementptr {offsets.type}, {table.typed}, i64 {lane}", "ptr", at=at)
        place = code.let(f"load {offsets.type}, {cell.typed}, align 4", offsets.type, at=at)
        place = code.convert("sext", place, "i64", at) if offsets.type != "i64" else place
        cell = code.let(f"getelementptr {kind}, {base.typed}, {place.typed}", "ptr", at=at)
        element = code.let(f"load {kind}, {cell.typed}, align 1", kind, at=at)
        text = f"insertelement {found.typed}, {element.typed}, i64 {lane}"
        found = code.let(text, kind, lanes, at)
    return found


def _place_type(buffer: Buffer) -> str:
    """The type that places in a buffer are computed with: lanes of 64 bits take twice as long."""
    return "i32" if buffer.size < 1 << 31 else "i64"


def _scattered(body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level) -> Ref:
    """An address for each lane; lanes that don't exist get an address that may be read."""
    base, offsets = _offsets(body, buffer, offset, mask, at)
    text = f"getelementptr {stored(buffer.dtype)}, ptr {base.text}, {offsets.typed}"
    return body.code.let(text, "ptr", body.lanes, at)


def _offsets(
    body: Body, buffer: Buffer, offset: Index, mask: Mask | None, at: Level
) -> tuple[Ref, Ref]:
    """A base, and an offset from it for each lane; lanes that don't exist get one that may be
    read."""
    code, kind, lanes = body.code, stored(buffer.dtype), body.lanes
    live = body.and_lanes(mask, at)
    stride = stride_of(body, offset)
    base = body.buffer(buffer)
    if stride is not None and mask is None and not body.analysis.index_reads(offset):
        # Counted from lane 0's address: that lane always exists.
        rest, moving = split(body, offset)
        start = uniform(body, rest, None)
        (atom, coefficient), *_ = moving.terms or ((None, 0),)
        if coefficient in STRIDES:
            factor = constant(coefficient, "i64")
        else:
            factor = body.size(coefficient, ("coefficient", offset, atom))
        assert body.vector is not None
        moved = code.binary("mul", body.vector.variable, factor, at)
        first = code.binary("add", start, moved, at)
        base = code.let(f"getelementptr {kind}, ptr {base.text}, i64 {first.text}", "ptr", at=at)
        offsets = lane_steps(body, factor, "i64")
    else:
        offsets = code.spread(position(body, offset, mask, _place_type(buffer)), lanes, at)
    return base, code.select(live, offsets, constant(0, offsets.type, lanes), at)


def store(body: Body, stores: Sequence[tuple[Store, Ref]]) -> None:
    """Writes values at the innermost level, after all of them are computed."""
    at, code = body.code.level, body.code
    neighbours = []
    sides = _side_by_side(body, stores)
    for first, second in sides:
        both = [
            to_memory(body, code.spread(v, body.lanes, at), s.buffer.dtype, at)
            for s, v in (first, second)
        ]
        _alternate(body, first[0], both[0], both[1], at)
    done = {id(each) for pair in sides for each, _ in pair}
    for each, value in stores:
        if id(each) in done:
            continue
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
        (address,) = addresses_of(body, [(buffer, each.offset)], None, at)
        neighbours.append((address, buffer, raw))
    if neighbours:
        _two_ways(
            body,
            at,
            lambda: vector_stores(body, neighbours, at),
            lambda: _masked_stores(body, neighbours, at),
        )


def _side_by_side(
    body: Body, stores: Sequence[tuple[Store, Ref]]
) -> list[tuple[tuple[Store, Ref], tuple[Store, Ref]]]:
    """Stores to neighbouring elements of a buffer, with lanes two elements apart: both parts of
    complex numbers."""
    if body.vector is None:
        return []
    found: dict[tuple[Buffer, Index], tuple[Store, Ref]] = {}
    pairs = []
    for each in stores:
        buffer, offset = each[0].buffer, each[0].offset
        before = found.pop((buffer, offset - 1), None)
        if before is not None:
            pairs.append((before, each))
        elif not body.analysis.index_reads(offset) and stride_of(body, offset) == 2:
            found[buffer, offset] = each
    return pairs


def _alternate(body: Body, first: Store, a: Ref, b: Ref, at: Level) -> None:
    """Stores the elements of `a` and `b` in turns, from the place of `first` on, as one vector."""
    code, lanes, buffer = body.code, body.lanes, first.buffer
    kind, align = stored(buffer.dtype), buffer.dtype.itemsize
    address = _address(body, buffer, _first_lane(body, first.offset, 2, None, at), at)
    order = ", ".join(f"i32 {i // 2 + i % 2 * lanes}" for i in range(2 * lanes))
    picks = f"<{2 * lanes} x i32> <{order}>"
    both = code.let(f"shufflevector {a.typed}, {b.typed}, {picks}", kind, 2 * lanes, at)

    def whole() -> list[Ref]:
        code.add(f"store {both.typed}, ptr {address.text}, align {align}", at)
        return []

    def part() -> list[Ref]:
        mask = code.spread(body.lane_mask(at), lanes, at)
        text = f"shufflevector {mask.typed}, {mask.typed}, {picks}"
        twice = code.let(text, "i1", 2 * lanes, at)
        _masked_store(body, address, buffer, both, twice, at)
        return []

    _two_ways(body, at, whole, part)


def _store_scalar(body: Body, buffer: Buffer, offset: Index, raw: Ref, at: Level) -> None:
    base = body.buffer(buffer)
    where = uniform(body, offset, None)
    text = f"getelementptr {raw.type}, ptr {base.text}, i64 {where.text}"
    place = body.code.let(text, "ptr", at=at)
    body.code.add(f"store {raw.typed}, ptr {place.text}, align {buffer.dtype.itemsize}", at)


Neighbours = list[tuple[Ref, Buffer, Ref]]


def vector_stores(body: Body, each: Neighbours, at: Level) -> list[Ref]:
    for address, buffer, raw in each:
        align = buffer.dtype.itemsize
        body.code.add(f"store {raw.typed}, ptr {address.text}, align {align}", at)
    return []


def _masked_stores(body: Body, each: Neighbours, at: Level) -> list[Ref]:
    mask = body.lane_mask(at)
    for address, buffer, raw in each:
        _masked_store(body, address, buffer, raw, mask, at)
    return []


def _masked_store(body: Body, address: Ref, buffer: Buffer, raw: Ref, mask: Ref, at: Level) -> None:
    code = body.code
    symbol = f"@llvm.masked.store.{suffix(raw.type, raw.lanes)}.p0"
    code.declare(f"declare void {symbol}({raw.full_type}, ptr, i32, <{raw.lanes} x i1>)")
    given = f"{raw.typed}, ptr {address.text}, i32 {buffer.dtype.itemsize}, {mask.typed}"
    code.add(f"call void {symbol}({given})", at)


def _scatter(body: Body, buffer: Buffer, offset: Index, raw: Ref, at: Level) -> None:
    addresses = _scattered(body, buffer, offset, None, at)
    if body.machine.vector_bytes >= 64:  # these machines have an instruction for it
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
