"""The inner loop of a contraction: a tile of the result, held in registers while it is summed.

Each step along K loads one row of `b` as vectors and multiplies it by a column of `a`, element by
element. An operand has one of three layouts:

    packed      a[k][i] and b[k][j], one step after another, nothing between
    strided     a[i * row + k * step] and b[k * step + j]
    gathered    a[rows[i] + steps[k]] or b[vectors[j] + steps[k]], with tables in memory
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from ..code import Code
from ..machine import Machine
from ..types import Ref, constant, vector
from .words import SIDE, Words

UNROLL = 4
LINE = 64
"""Bytes of a line of the cache."""


@dataclass(frozen=True)
class Tile:
    """rows x (vectors * lanes) accumulators of type `kind`: float or double, or i32, whose factors
    are `words` of bytes."""

    kind: str
    lanes: int
    rows: int
    vectors: int
    words: Words | None = None

    @property
    def places(self) -> int:
        """The places along K that are packed in one element."""
        return 1 if self.words is None else self.words.places

    @property
    def step(self) -> int:
        """The elements along K that are multiplied together."""
        return 1 if self.words is None else self.words.step

    @property
    def shifts(self) -> bool:
        return self.words is not None and self.words.shifts

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
    rows: int | None = None,
    words: Words | None = None,
) -> Tile:
    """A tile for results with so many rows and columns (None: many). Its accumulators fit the
    registers beside the values that a step loads. They are enough to keep two units busy while each
    sum waits for its last addition. chosen: the rows and vectors that a schedule says."""
    lanes = machine.vector_bytes // (8 if kind == "double" else 4)
    if words is not None and words.squares:
        few, narrow = (n is not None and n <= SIDE for n in (rows, columns))
        return Tile(kind, lanes, SIDE if few else 2 * SIDE, 1 if narrow else 2, words)
    if chosen is not None:
        return Tile(kind, lanes, *chosen, words)
    if columns is not None and columns <= lanes:
        return Tile(kind, lanes, 8, 1, words)
    if machine.vector_bytes == 32:  # 16 registers; words with a shift take a row more
        return Tile(kind, lanes, 5 if words is not None and words.shifts else 6, 2, words)
    if machine.vector_bytes == 64:
        return Tile(kind, lanes, _rows(rows), 2, words)
    return Tile(kind, lanes, 8, 2, words)  # NEON multiplies by one lane of a vector of `a`


def _rows(count: int | None) -> int:
    """The rows of a tile that fills 32 registers, or of a smaller one that leaves fewer rows of the
    last tile empty. A step takes about as long as so many rows and two more."""
    if count is None:
        return 12
    return min((12, 9, 8), key=lambda rows: -(-count // rows) * (rows + 2))


@dataclass(frozen=True)
class Operand:
    """The place of a tile's operand: where its rows begin, and how far it is along K. Distances
    count elements.

    starts: the first rows of groups of rows (of `b`: its only row, or each vector of it). rows: the
    distances of the rows of a group from its first one; None if they are neighbours. step: from one
    place along K to the next. table: the distances of the places along K from the first one, int32,
    in the place of `step`.
    """

    starts: tuple[Ref, ...]
    step: Ref | None = None
    rows: tuple[Ref, ...] | None = None
    table: Ref | None = None

    @property
    def state(self) -> list[Ref]:
        """What moves along K."""
        return list(self.starts) if self.table is None else [self.table]

    def moved(self, code: Code, tile: Tile, state: Sequence[Ref]) -> list[Ref]:
        """The state at the next place."""
        if self.table is not None:
            return [code.let(f"getelementptr i32, ptr {state[0].text}, i64 1", "ptr")]
        assert self.step is not None
        return [offset(code, tile, at, self.step) for at in state]

    def places(self, code: Code, tile: Tile, state: Sequence[Ref]) -> list[Ref]:
        """The first rows of the groups at a place."""
        if self.table is None:
            return list(state)
        step = entry(code, state[0], 0)
        return [offset(code, tile, start, step) for start in self.starts]


@dataclass(frozen=True)
class Soon:
    """The memory that is used after the sum. Every UNROLL steps lines of it are fetched into the
    cache: all at once, they would keep the processor from reading the operands.

    ahead: a panel that is read next. c, row: the tile of the result, and the distance of its rows.
    """

    ahead: Ref
    c: Ref
    row: Ref

    def fetch(self, code: Code, tile: Tile, step: Ref) -> None:
        lines = code.binary("mul", step, constant(LINE // UNROLL, "i64"))
        at = code.let(f"getelementptr i8, ptr {self.ahead.text}, i64 {lines.text}", "ptr")
        code.prefetch(at)
        more = code.compare("icmp ult", step, constant(UNROLL * (tile.rows - 1), "i64"))

        def following(c: Ref) -> tuple[Ref, Ref]:
            return c, code.select(more, offset(code, tile, c, self.row), c)

        row = code.carry(self.c, following)
        for j in range(0, tile.columns, LINE // tile.itemsize):
            code.prefetch(offset(code, tile, row, j))


def packed(start: Ref, width: int) -> Operand:
    return Operand((start,), constant(width, "i64"))


def entry(code: Code, table: Ref, place: int) -> Ref:
    """An entry of a table of int32, as 64 bits."""
    at = code.let(f"getelementptr i32, ptr {table.text}, i64 {place}", "ptr")
    return code.convert("sext", code.let(f"load i32, ptr {at.text}, align 4", "i32"), "i64")


def multiples(code: Code, distance: Ref, count: int) -> tuple[Ref, ...]:
    """0, distance, 2 * distance, ..."""
    out = [constant(0, "i64")]
    while len(out) < count:
        out.append(code.binary("add", out[-1], distance))
    return tuple(out)


def accumulate(
    code: Code,
    tile: Tile,
    a: Operand,
    b: Operand,
    depth: Ref,
    held: Sequence[Ref],
    soon: Soon | None = None,
) -> list[Ref]:
    """`held` (row by row, vector by vector) plus a times b, summed over `depth` places of K, or
    words of them."""
    if tile.shifts:
        held = [*held, *[constant(0, tile.kind, tile.lanes)] * tile.vectors]
    steps = UNROLL if depth.text.startswith("%") or int(depth.text) >= UNROLL else 1
    first, state = constant(0, "i64"), [*a.state, *b.state, *held]
    if steps > 1:
        whole = code.binary("and", depth, constant(-steps, "i64"))
        state = _loop(code, tile, a, b, first, whole, steps, state, soon)
        first, soon = whole, None
    out = _loop(code, tile, a, b, first, depth, 1, state, soon)[-len(held) :]
    if not tile.shifts:
        return out
    sums, more = out[: -tile.vectors], out[-tile.vectors :]
    return [code.binary("sub", each, more[i % tile.vectors]) for i, each in enumerate(sums)]


def _loop(
    code: Code,
    tile: Tile,
    a: Operand,
    b: Operand,
    first: Ref,
    stop: Ref,
    steps: int,
    state: Sequence[Ref],
    soon: Soon | None,
) -> list[Ref]:
    loop = code.open_loop(first, stop, steps, state, stem="k")
    if soon is not None:
        soon.fetch(code, tile, loop.variable)
    refs = [phi for phi, _ in loop.carried]
    of_a, of_b = len(a.state), len(a.state) + len(b.state)
    at_a, at_b, held = refs[:of_a], refs[of_a:of_b], refs[of_b:]
    for _ in range(steps):
        places = a.places(code, tile, at_a), b.places(code, tile, at_b)
        held = _step(code, tile, *places, a.rows, held)
        at_a, at_b = a.moved(code, tile, at_a), b.moved(code, tile, at_b)
    return code.close_loop(loop, [*at_a, *at_b, *held])


def _step(
    code: Code,
    tile: Tile,
    starts: Sequence[Ref],
    vectors: Sequence[Ref],
    rows: Sequence[Ref] | None,
    held: Sequence[Ref],
) -> list[Ref]:
    if len(vectors) < tile.vectors:
        vectors = [offset(code, tile, vectors[0], j * tile.lanes) for j in range(tile.vectors)]
    row = [load(code, tile, at) for at in vectors]
    out: list[Ref] = []
    column = _column(code, tile, starts, rows)
    if tile.words is not None and tile.shifts:
        column = chain(column, [code.splat(tile.words.offset, tile.lanes)])
    for i, element in enumerate(column):
        for j in range(tile.vectors):
            out.append(_multiply(code, tile, element, row[j], held[i * tile.vectors + j]))
        if tile.lanes > 4:
            _keep_order(code, out[-tile.vectors :])
    return out


def _multiply(code: Code, tile: Tile, a: Ref, b: Ref, total: Ref) -> Ref:
    if tile.words is not None:
        return tile.words.add(code, a, b, total)
    return code.intrinsic("fma", [a, b, total], flags="contract ")


def _keep_order(code: Code, done: Sequence[Ref]) -> None:
    """No instruction, but loads that follow stay behind the sums `done`. LLVM's scheduler would
    load a whole column first, and spill. ("v" is any vector register of x86.)"""
    given, places = ", ".join(d.typed for d in done), "v," * len(done)
    code.add(f'call void asm sideeffect "", "{places}~{{memory}}"({given})')


def _column(
    code: Code, tile: Tile, starts: Sequence[Ref], rows: Sequence[Ref] | None
) -> Iterator[Ref]:
    """The elements of `a` at one place of K, each in all lanes."""
    if rows is None and tile.lanes <= 4 and tile.rows % tile.lanes == 0:
        # Machines with so few lanes can multiply by one lane of a vector.
        for i in range(0, tile.rows, tile.lanes):
            each = load(code, tile, offset(code, tile, starts[0], i))
            for lane in range(tile.lanes):
                places = ", ".join([f"i32 {lane}"] * tile.lanes)
                text = f"shufflevector {each.typed}, {each.full_type} poison, "
                text += f"<{tile.lanes} x i32> <{places}>"
                yield code.let(text, tile.kind, tile.lanes)
        return
    distances: Sequence[Ref | int] = range(tile.rows) if rows is None else rows
    for start in starts:
        for distance in distances:
            place = offset(code, tile, start, distance)
            one = code.let(f"load {tile.kind}, ptr {place.text}, align {tile.itemsize}", tile.kind)
            yield code.splat(one, tile.lanes)


def offset(code: Code, tile: Tile, start: Ref, elements: Ref | int) -> Ref:
    text = elements.text if isinstance(elements, Ref) else str(elements)
    if text == "0":
        return start
    return code.let(f"getelementptr {tile.kind}, ptr {start.text}, i64 {text}", "ptr")


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
            add = "add" if tile.kind == "i32" else "fadd"
            total = code.binary(add, load(code, tile, place), value)
            code.add(f"store {total.typed}, ptr {place.text}, align {tile.itemsize}")
        code.add(f"br label %{done}")
        code.level.block(new)
    for value, place in zip(held, places):
        code.add(f"store {value.typed}, ptr {place.text}, align {tile.itemsize}")
    if fresh is not None:
        code.add(f"br label %{done}")
        code.level.block(done)


def zeros(tile: Tile) -> list[Ref]:
    return [constant(0, tile.kind, tile.lanes)] * (tile.rows * tile.vectors)


PARAMETERS = (
    "ptr noalias %a, ptr noalias %b, ptr noalias %c, i64 %row, i64 %depth, i1 %fresh, ptr %ahead"
)


def function(tile: Tile, a_packed: bool = True) -> Code:
    """Sets the tile at `c` to a times b, or adds a times b to it if `fresh` is 0:

    void micro(ptr a, ptr b, ptr c, i64 row, i64 depth, i1 fresh, ptr ahead[, i64 a_row])

    `a` is packed, or its rows are a_row apart and its places along K are neighbours.
    """
    parameters = PARAMETERS if a_packed else f"{PARAMETERS}, i64 %a_row"
    code = Code(name(a_packed), parameters, internal=True)
    a = packed(Ref("%a", "ptr"), tile.rows)
    if not a_packed:
        rows = multiples(code, Ref("%a_row", "i64"), tile.rows)
        a = Operand(a.starts, constant(1, "i64"), rows)
    _write(code, tile, a)
    return code


def name(a_packed: bool) -> str:
    return "micro_packed" if a_packed else "micro_strided"


def gathering(code: Code, tile: Tile, each: int) -> str:
    """The symbol of a function that does so for an `a` whose rows are gathered:

    void micro(ptr a, ..., ptr ahead, ptr rows, i64 pitch, ptr steps)

    Its elements are a[rows[i] + steps[k]]. Groups of `each` rows are `pitch` apart: only the first
    entry of a group is read.
    """

    def write(inner: Code) -> None:
        a, rows, steps = (Ref(f"%{n}", "ptr") for n in ("a", "rows", "steps"))
        starts = [offset(inner, tile, a, entry(inner, rows, i)) for i in range(0, tile.rows, each)]
        distances = multiples(inner, Ref("%pitch", "i64"), each)
        _write(inner, tile, Operand(tuple(starts), None, distances, steps))

    parameters = f"{PARAMETERS}, ptr noalias %rows, i64 %pitch, ptr noalias %steps"
    return code.function(f"micro_{tile.rows}x{tile.vectors}_by_{each}", parameters, write)


def stepping(code: Code, tile: Tile) -> str:
    """The symbol of a function that does so for an `a` whose rows are neighbours, at steps of a
    table: a[i + steps[k]].

    void micro(ptr a, ..., ptr ahead, ptr steps)
    """

    def write(inner: Code) -> None:
        a, steps = Ref("%a", "ptr"), Ref("%steps", "ptr")
        _write(inner, tile, Operand((a,), table=steps))

    parameters = f"{PARAMETERS}, ptr noalias %steps"
    return code.function(f"micro_{tile.rows}x{tile.vectors}_by_steps", parameters, write)


def _write(code: Code, tile: Tile, a: Operand) -> None:
    b = packed(Ref("%b", "ptr"), tile.columns)
    c, row = Ref("%c", "ptr"), Ref("%row", "i64")
    soon = Soon(Ref("%ahead", "ptr"), c, row)
    held = accumulate(code, tile, a, b, Ref("%depth", "i64"), zeros(tile), soon)
    write_tile(code, tile, held, c, row, Ref("%fresh", "i1"))
