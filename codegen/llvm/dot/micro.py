"""The inner loop of a contraction: a tile of the result, held in registers while it is summed.

Each step along K loads one row of `b` as vectors and multiplies it by a column of `a`, element by
element. An operand has one of two layouts:

    packed      a[k][i] and b[k][j], one step after another, nothing between
    strided     a[i * row + k * step] and b[k * step + j]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..code import Code
from ..machine import Machine
from ..types import Ref, constant, vector

UNROLL = 4
LINE = 64
"""Bytes of a line of the cache."""


@dataclass(frozen=True)
class Tile:
    """rows x (vectors * lanes) accumulators of type `kind`, float or double."""

    kind: str
    lanes: int
    rows: int
    vectors: int

    @property
    def columns(self) -> int:
        return self.lanes * self.vectors

    @property
    def itemsize(self) -> int:
        return 8 if self.kind == "double" else 4


def tile_for(
    machine: Machine,
    kind: str,
    columns: int | None = None,
    chosen: tuple[int, int] | None = None,
) -> Tile:
    """A tile for results with so many columns (None: many). Its accumulators fit the registers
    beside the values that a step loads. They are enough to keep two units busy while each sum waits
    for its last addition. chosen: the rows and vectors that a schedule says."""
    lanes = machine.vector_bytes // (8 if kind == "double" else 4)
    if chosen is not None:
        return Tile(kind, lanes, *chosen)
    if columns is not None and columns <= lanes:
        return Tile(kind, lanes, 8, 1)
    if machine.vector_bytes == 32:  # 16 registers
        return Tile(kind, lanes, 6, 2)
    # 32 registers. With 12 rows, LLVM's scheduler spills on AVX-512. NEON multiplies by one lane of
    # a vector of `a`.
    return Tile(kind, lanes, 8, 2)


@dataclass(frozen=True)
class Operand:
    """The place of a tile's operand. Strides count elements.

    step: from one place along K to the next. rows: for `a`, the distance of each row from the first
    one; None if rows are neighbours.
    """

    start: Ref
    step: Ref
    rows: tuple[Ref, ...] | None = None


def packed(start: Ref, width: int) -> Operand:
    return Operand(start, constant(width, "i64"))


def accumulate(
    code: Code,
    tile: Tile,
    a: Operand,
    b: Operand,
    depth: Ref,
    held: Sequence[Ref],
    ahead: Ref | None = None,
) -> list[Ref]:
    """`held` (row by row, vector by vector) plus a times b, summed over `depth` places of K.

    ahead: memory from which a line is fetched into the cache every UNROLL steps.
    """
    steps = UNROLL if depth.text.startswith("%") or int(depth.text) >= UNROLL else 1
    whole = code.binary("and", depth, constant(-steps, "i64"))
    state = [a.start, b.start, *held]
    state = _loop(code, tile, a, b, constant(0, "i64"), whole, steps, state, ahead)
    return _loop(code, tile, a, b, whole, depth, 1, state, None)[2:]


def _loop(
    code: Code,
    tile: Tile,
    a: Operand,
    b: Operand,
    first: Ref,
    stop: Ref,
    steps: int,
    state: Sequence[Ref],
    ahead: Ref | None,
) -> list[Ref]:
    loop = code.open_loop(first, stop, steps, state, stem="k")
    if ahead is not None:
        lines = code.binary("mul", loop.variable, constant(LINE // steps, "i64"))
        fetch(code, code.let(f"getelementptr i8, ptr {ahead.text}, i64 {lines.text}", "ptr"))
    at_a, at_b, *held = (phi for phi, _ in loop.carried)
    for _ in range(steps):
        held = _step(code, tile, a, at_a, at_b, held)
        at_a, at_b = offset(code, tile, at_a, a.step), offset(code, tile, at_b, b.step)
    return code.close_loop(loop, [at_a, at_b, *held])


def _step(
    code: Code, tile: Tile, a: Operand, at_a: Ref, at_b: Ref, held: Sequence[Ref]
) -> list[Ref]:
    row = [load(code, tile, offset(code, tile, at_b, j * tile.lanes)) for j in range(tile.vectors)]
    out: list[Ref] = []
    for i, element in enumerate(_column(code, tile, a, at_a)):
        for j in range(tile.vectors):
            sum_ = held[i * tile.vectors + j]
            out.append(code.intrinsic("fma", [element, row[j], sum_], flags="contract "))
    return out


def _column(code: Code, tile: Tile, a: Operand, at: Ref) -> list[Ref]:
    """The elements of `a` at one place of K, each in all lanes."""
    if a.rows is None and tile.lanes <= 4 and tile.rows % tile.lanes == 0:
        # Machines with so few lanes can multiply by one lane of a vector.
        out = []
        for i in range(0, tile.rows, tile.lanes):
            each = load(code, tile, offset(code, tile, at, i))
            for lane in range(tile.lanes):
                places = ", ".join([f"i32 {lane}"] * tile.lanes)
                text = f"shufflevector {each.typed}, {each.full_type} poison, "
                text += f"<{tile.lanes} x i32> <{places}>"
                out.append(code.let(text, tile.kind, tile.lanes))
        return out
    out = []
    for i in range(tile.rows):
        place = offset(code, tile, at, i if a.rows is None else a.rows[i])
        one = code.let(f"load {tile.kind}, ptr {place.text}, align {tile.itemsize}", tile.kind)
        out.append(code.splat(one, tile.lanes))
    return out


def offset(code: Code, tile: Tile, start: Ref, elements: Ref | int) -> Ref:
    text = elements.text if isinstance(elements, Ref) else str(elements)
    if text == "0":
        return start
    return code.let(f"getelementptr {tile.kind}, ptr {start.text}, i64 {text}", "ptr")


def fetch(code: Code, at: Ref) -> None:
    """Starts to bring a line into the cache, if there is memory at all."""
    code.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    code.add(f"call void @llvm.prefetch.p0(ptr {at.text}, i32 0, i32 3, i32 1)")


def load(code: Code, tile: Tile, at: Ref, lanes: int = 0) -> Ref:
    lanes = lanes or tile.lanes
    text = f"load {vector(tile.kind, lanes)}, ptr {at.text}, align {tile.itemsize}"
    return code.let(text, tile.kind, lanes)


def write_tile(
    code: Code, tile: Tile, held: Sequence[Ref], c: Ref, row: Ref, fresh: Ref | None
) -> None:
    """Stores the tile at c, whose rows are `row` elements apart. Unless `fresh` (None: always) is
    true, it is added to the memory there. Ends the block."""
    places = []
    at = c
    for _ in range(tile.rows):
        places += [offset(code, tile, at, j * tile.lanes) for j in range(tile.vectors)]
        at = offset(code, tile, at, row)
    if fresh is not None:
        new, more, done = (code.fresh_label(s) for s in ("new", "more", "done"))
        code.add(f"br i1 {fresh.text}, label %{new}, label %{more}")
        code.level.block(more)
        for value, place in zip(held, places):
            total = code.binary("fadd", load(code, tile, place), value)
            code.add(f"store {total.typed}, ptr {place.text}, align {tile.itemsize}")
        code.add(f"br label %{done}")
        code.level.block(new)
    for value, place in zip(held, places):
        code.add(f"store {value.typed}, ptr {place.text}, align {tile.itemsize}")
    if fresh is not None:
        code.add(f"br label %{done}")
        code.level.block(done)


def zeros(tile: Tile) -> list[Ref]:
    return [constant(0.0, tile.kind, tile.lanes)] * (tile.rows * tile.vectors)


def function(tile: Tile, a_packed: bool = True, b_packed: bool = True) -> Code:
    """Sets the tile at `c` to a times b, or adds a times b to it if `fresh` is 0:

    void micro(ptr a, ptr b, ptr c, i64 row, i64 depth, i1 fresh, ptr ahead
        [, i64 a_row, i64 a_step][, i64 b_step])
    """
    parameters = "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %row, i64 %depth, i1 %fresh"
    parameters += ", ptr %ahead"
    parameters += "" if a_packed else ", i64 %a_row, i64 %a_step"
    parameters += "" if b_packed else ", i64 %b_step"
    code = Code(name(a_packed, b_packed), parameters, internal=True)
    a, b = packed(Ref("%a", "ptr"), tile.rows), packed(Ref("%b", "ptr"), tile.columns)
    if not a_packed:
        rows = [constant(0, "i64")]
        for _ in range(tile.rows - 1):
            rows.append(code.binary("add", rows[-1], Ref("%a_row", "i64")))
        a = Operand(a.start, Ref("%a_step", "i64"), tuple(rows))
    if not b_packed:
        b = Operand(b.start, Ref("%b_step", "i64"))
    depth, ahead = Ref("%depth", "i64"), Ref("%ahead", "ptr")
    held = accumulate(code, tile, a, b, depth, zeros(tile), ahead)
    write_tile(code, tile, held, Ref("%c", "ptr"), Ref("%row", "i64"), Ref("%fresh", "i1"))
    return code


def name(a_packed: bool, b_packed: bool) -> str:
    return f"micro_{'p' if a_packed else 's'}{'p' if b_packed else 's'}"
