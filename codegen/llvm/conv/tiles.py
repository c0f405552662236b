"""The tiles of a product over windows.

A chunk is a block of rows and some panels of columns. It sums in memory of its own, in pieces of
STEPS, so that a panel stays in the first level of cache while all rows of the block meet it. At the
end each panel is transposed, and the epilogue runs along its rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ...kernel import Buffer, Kernel, Load, Store, Value
from ...kernel import index as ix
from ...kernel.canonical import collapsed, copied
from ...kernel.index import Axis, Index
from .. import points
from ..arguments import Arguments
from ..body import Body
from ..code import Code
from ..dot import micro
from ..dot.micro import Tile, load, offset
from ..dot.squares import transposed
from ..form import Form
from ..machine import CannotLower, Machine
from ..phases import Phase, function
from ..positions import uniform
from ..schedule import Schedule
from ..stages import bind_vector
from ..types import Ref, constant
from ..values import evaluate
from .plan import Part
from .roles import Product, size

STEPS = 256
"""Steps of the sum in a panel: 16 KiB for 16 columns."""
ROWS = 96
"""Rows of a block: a multiple of any tile's and any vector's length."""
SUMS = 1 << 16
"""The most bytes of sums in a chunk: they stay in the second level of cache."""
FEW = 8
"""Up to so many rows of a tile have a pointer each: an x86 processor has registers for these."""
CHUNKS, CHUNK = 16, 1 << 20
"""The wanted number of chunks, and the least products of a chunk."""


@dataclass(frozen=True)
class Blocks:
    """The cut of a product's rows and panels into chunks, and of its sum into pieces of steps."""

    rows: int
    panels: int
    pieces: int

    def count(self, m: int, panels: int) -> tuple[int, int]:
        return -(-m // self.rows), -(-panels // self.panels)


def blocks_of(found: Product, tile: Tile, schedule: Schedule) -> Blocks:
    """The blocks of a product, by size and schedule alone: results don't depend on the number of
    threads."""
    m, items, k = size(found.m), size(found.batch), size(found.k)
    count = -(-size(found.n) // tile.columns)
    step = math.lcm(tile.rows, tile.lanes)
    pieces = -(-k // (schedule.depth or STEPS))
    rows = min(max((schedule.rows or ROWS) // step, 1), -(-m // step)) * step
    if schedule.columns is not None:
        wide = min(count, max(schedule.columns // tile.columns, 1))
        return Blocks(rows, wide, pieces)
    wide = min(count, max(SUMS // (rows * tile.columns * tile.itemsize), 1))
    work = m * count * tile.columns * k * items

    def chunks() -> int:
        return items * -(-m // rows) * -(-count // wide)

    while chunks() < CHUNKS and work // chunks() > 2 * CHUNK:
        if wide > 1:
            wide = -(-wide // 2)
        elif rows > step:
            rows = -(-rows // 2 // step) * step
        else:
            break
    return Blocks(rows, wide, pieces)


def write(
    name: str,
    part: Part,
    columns: Load,
    machine: Machine,
    arguments: Arguments,
    tile: Tile,
    blocks: Blocks,
    width: int,
    writer: type[Tiles],
) -> tuple[Phase, Code]:
    """A function that computes blocks of a part, with the epilogue of its product.

    columns: a load of the packed columns, in the place of `part.product.columns`.
    """
    found = part.product
    rest = _epilogue(part.kernel, found)
    outer = tuple(rest.parallel[len(found.batch) + len(found.n) : -1])
    form = Form(rest.parallel[-1], tile.lanes, outer, 1, 1, False)
    body = Body(rest, machine, form, evaluate, arguments.part(name), function(name))
    tiles = writer(body, found, tile, blocks, width, part.image, columns)
    tiles.write()
    chunks = size(found.batch) * math.prod(blocks.count(size(found.m), tiles.count))
    return Phase(name, chunks), body.code


def table(axes: Sequence[Axis], offset: Index, pad: int = 1, each: int = 1) -> bytes:
    """The offset that each point of `axes` adds, in row-major order: int32, padded to a multiple of
    `pad` entries with the last `each`."""
    flat = offsets(axes, offset)
    if flat.max(initial=0) >= 1 << 31 or flat.min(initial=0) < -(1 << 31):
        raise CannotLower("an operand of more than 2^31 elements")
    groups = flat.astype(np.int32).reshape(-1, each)
    return np.pad(groups, ((0, -flat.size % pad // each), (0, 0)), "edge").tobytes()


def offsets(axes: Sequence[Axis], offset: Index) -> np.ndarray:
    total = np.zeros((), np.int64)
    for axis in axes:
        total = total[..., None] + np.arange(axis.extent) * offset.coefficient(axis)
    return total.reshape(-1)


def runs(axes: Sequence[Axis], offset: Index, tile: Tile) -> tuple[int, int]:
    """(each, pitch): the rows of a tile are groups of `each` that lie `pitch` apart. With pairs or
    triples, registers can point to all groups of a tile."""
    flat = offsets(axes, offset)
    for each in (2, 3) if tile.rows > FEW else ():
        if flat.size % each == tile.rows % each == 0:
            distances = np.diff(flat.reshape(-1, each))
            if (distances == distances[0, 0]).all():
                return each, int(distances[0, 0])
    return 1, 0


def _epilogue(kernel: Kernel, found: Product) -> Kernel:
    """The kernel of all work behind the product, with a load in the product's place and its rows
    collapsed."""
    m, n = size(found.m), size(found.n)
    # The distance is the rows and one more, so that no column is a row's neighbour.
    order = [*found.m, *found.n, *found.batch]
    steps = _steps(found.m, 1) + _steps(found.n, m + 1) + _steps(found.batch, (m + 1) * (n + 1))
    offset = ix.linearize([ix.of(a) for a in order], steps)
    sums = Load(Buffer(_SUMS, found.dot.dtype, 0), offset, found.dot.dtype)
    made: dict[int, Value] = {}
    for value in kernel.values:
        done = sums if value is found.dot else copied(value, made, lambda index: index)
        made[id(value)] = done
    stores = tuple(Store(s.buffer, s.offset, made[id(s.value)]) for s in kernel.stores)
    rest = Kernel(kernel.name, (*found.batch, *found.n, *found.m), (), stores)
    return collapsed(rest, [found.m])


_SUMS = "sums"


def _is_sums(value: Value) -> bool:
    return isinstance(value, Load) and value.buffer.name == _SUMS


def _steps(axes: Sequence[Axis], step: int) -> list[int]:
    out = []
    for axis in reversed(axes):
        out.append(step)
        step *= axis.extent
    return out[::-1]


class Tiles:
    """The function that computes a chunk of tiles."""

    def __init__(
        self,
        body: Body,
        found: Product,
        tile: Tile,
        blocks: Blocks,
        width: int,
        rows: Load,
        columns: Load,
    ):
        self.body, self.code = body, body.code
        self.found, self.tile, self.blocks = found, tile, blocks
        self.rows, self.columns = rows, columns
        self.width = width
        self.block = (
            self.size(blocks.rows, "rows of a block"),
            self.size(blocks.panels, "panels of a block"),
        )
        # Whole vectors of rows are turned, so that a column of sums ends with one.
        self.pitch = self.size(-(-blocks.rows // tile.lanes) * tile.lanes, "column of sums")
        self.sums = next(v for v in body.kernel.values if _is_sums(v))
        self.count = -(-size(found.n) // self.width)
        self.m = self.size(size(found.m), "m")
        self.n = self.size(size(found.n), "n")
        self.k = self.size(size(found.k), "k")

    def size(self, value: int, key: str) -> Ref:
        return self.body.size(value, key, baked=False)

    def at(self, base: Ref, place: Ref) -> Ref:
        return offset(self.code, self.tile, base, place)

    def write(self) -> None:
        code = self.code
        m0, m1, first_panel, last_panel, before = self.begin()
        panel = -(-self.blocks.rows // self.tile.lanes) * self.tile.lanes * self.tile.columns
        self.held = self.room(self.blocks.panels * panel, "sums of a block")
        self.turned = self.room(panel + self.tile.lanes, "sums of a panel")
        self.add_products(m0, m1, first_panel, last_panel, before)
        loop = code.open_loop(first_panel, last_panel, stem="panel")
        self.turn(self.sums_of(code.binary("sub", loop.variable, first_panel)), m0, m1)
        self.finish(loop.variable, m0, m1)
        code.close_loop(loop)

    def sums_of(self, panel: Ref) -> Ref:
        """The sums of one of the chunk's panels: [row, column]."""
        place = self.code.binary("mul", panel, self.times(self.pitch, self.tile.columns))
        return self.at(self.held, place)

    def begin(self) -> tuple[Ref, Ref, Ref, Ref, Ref]:
        """The rows and panels of the chunk, from and to, and the panels before its batch. Binds the
        axes of the batch."""
        code, blocks = self.code, self.blocks
        rows, panels_each = self.block
        m_blocks, n_blocks = blocks.count(size(self.found.m), self.count)
        by_m, by_n = self.size(m_blocks, "row blocks"), self.size(n_blocks, "column blocks")
        chunk = Ref("%chunk", "i64")
        which = code.binary("urem", chunk, by_m)
        chunk = code.binary("udiv", chunk, by_m)
        first_panel = code.binary("mul", code.binary("urem", chunk, by_n), panels_each)
        item = code.binary("udiv", chunk, by_n)
        self.bind(self.found.batch, item)
        m0 = code.binary("mul", which, rows)
        m1 = self.least(code.binary("add", m0, rows), self.m)
        panels_ = self.size(self.count, "panels")
        last_panel = self.least(code.binary("add", first_panel, panels_each), panels_)
        return m0, m1, first_panel, last_panel, code.binary("mul", item, panels_)

    def const(self, value: int) -> Ref:
        return constant(value, "i64")

    def times(self, ref: Ref, factor: int) -> Ref:
        return self.code.binary("mul", ref, self.const(factor))

    def least(self, a: Ref, b: Ref) -> Ref:
        return self.code.intrinsic("smin", [a, b])

    def room(self, count: int, key: str) -> Ref:
        text = f"alloca {self.tile.kind}, {self.size(count, key).typed}, align 64"
        return self.code.let(text, "ptr", at=self.body.entry)

    def bind(self, axes: Sequence[Axis], place: Ref) -> None:
        """Binds axes to their point with a row-major number."""
        code = self.code
        rest = place
        for axis in reversed(axes[1:]):
            extent = self.body.extent(axis)
            self.body.bind(axis, code.binary("urem", rest, extent))
            rest = code.binary("udiv", rest, extent)
        if axes:
            self.body.bind(axes[0], rest)

    def add_products(self, m0: Ref, m1: Ref, first: Ref, last: Ref, before: Ref) -> None:
        """Adds the products of all steps to the sums of the chunk, a piece of steps at a time."""
        code, body, tile, blocks, found = self.code, self.body, self.tile, self.blocks, self.found
        place = self.rows.offset
        batch = Index(tuple((a, c) for a, c in place.terms if a in found.batch), place.const)
        image_ = self.at(body.buffer(self.rows.buffer), uniform(body, batch, None))
        packed = body.buffer(self.columns.buffer)
        each, pitch = runs(found.m, place, tile)
        whole = math.lcm(tile.rows, tile.lanes)
        row_table = body.table(table(found.m, place, whole, each), "rows")
        step_table = body.table(table(found.k, place), "steps")
        most = self.size(-(-size(found.k) // blocks.pieces), "steps of a piece")
        piece = code.open_loop(self.const(0), self.k, most, stem="piece")
        left = self.least(code.binary("sub", self.k, piece.variable), most)
        fresh = code.compare("icmp eq", piece.variable, self.const(0))
        steps = self.entry_of(step_table, piece.variable)
        step = self.times(self.k, tile.columns)
        start = code.binary("mul", code.binary("add", before, first), step)
        start = code.binary("add", start, self.times(piece.variable, tile.columns))
        first_b = self.at(packed, start)
        panel = code.open_loop(first, last, 1, [first_b], stem="panel")
        ((b, _),) = panel.carried
        sums = self.sums_of(code.binary("sub", panel.variable, first))
        # The tiles of a panel together fetch the next one, or that of the next piece, a part each.
        next_b = self.at(b, step)
        is_last = code.compare("icmp eq", code.binary("add", panel.variable, self.const(1)), last)
        soon = code.select(is_last, self.at(first_b, self.times(left, tile.columns)), next_b)
        tiles = code.binary("udiv", code.binary("sub", m1, m0), self.const(tile.rows))
        tiles = code.binary("add", tiles, self.const(1))
        part = code.binary("udiv", self.times(left, tile.columns), tiles)
        row = code.open_loop(m0, m1, tile.rows, [soon], stem="row")
        ((ahead, _),) = row.carried
        rows = self.entry_of(row_table, row.variable)
        own = self.times(code.binary("sub", row.variable, m0), tile.columns)
        given = [image_, b, self.at(sums, own), self.const(tile.columns), left, fresh, ahead]
        given += [rows, self.size(pitch, "pitch of the rows"), steps]
        symbol = micro.gathering(code, tile, each)
        code.add(f"call void {symbol}({', '.join(g.typed for g in given)})")
        code.close_loop(row, [self.at(ahead, part)])
        code.close_loop(panel, [next_b])
        code.close_loop(piece)

    def entry_of(self, table_: Ref, place: Ref) -> Ref:
        return self.code.let(f"getelementptr i32, ptr {table_.text}, {place.typed}", "ptr")

    def turn(self, sums: Ref, m0: Ref, m1: Ref) -> None:
        """Transposes a panel's sums from [row, column] to [column, row]."""
        code, tile = self.code, self.tile
        loop = code.open_loop(self.const(0), code.binary("sub", m1, m0), tile.lanes, stem="row")
        for j in range(tile.vectors):
            square = []
            for i in range(tile.lanes):
                row = self.row_of_sums(code.binary("add", loop.variable, self.const(i)))
                place = code.binary(
                    "add", self.times(row, tile.columns), self.const(j * tile.lanes)
                )
                square.append(load(code, tile, self.at(sums, place), tile.lanes))
            for i, vector in enumerate(transposed(code, square)):
                column = self.times(self.pitch, j * tile.lanes + i)
                place = code.binary("add", loop.variable, column)
                at = self.at(self.turned, place)
                code.add(f"store {vector.typed}, ptr {at.text}, align {tile.itemsize}")
        code.close_loop(loop)

    def row_of_sums(self, row: Ref) -> Ref:
        """Where a row of the block, counted from its first one, lies among the sums."""
        return row

    def finish(self, panel: Ref, m0: Ref, m1: Ref) -> None:
        """Runs the epilogue for the columns of a panel: along the rows that are one axis, for each
        point of the other axes of rows."""
        code, body, tile = self.code, self.body, self.tile
        along = body.form.vector
        assert along is not None
        left = self.times(panel, self.width)
        columns = self.least(code.binary("sub", self.n, left), self.const(self.width))
        run = self.size(along.extent, "run")
        first = code.binary("udiv", m0, run)
        last = code.binary("udiv", code.binary("sub", m1, self.const(1)), run)
        rows = code.open_loop(first, code.binary("add", last, self.const(1)), stem="run")
        self.bind(body.form.outer, rows.variable)
        begin = code.binary("mul", rows.variable, run)
        x0 = code.intrinsic("smax", [code.binary("sub", m0, begin), self.const(0)])
        x1 = self.least(code.binary("sub", m1, begin), run)
        column = code.open_loop(self.const(0), columns, stem="column")
        self.bind(self.found.n, code.binary("add", left, column.variable))
        own = code.binary("add", code.binary("mul", column.variable, self.pitch), begin)
        own = self.at(self.turned, code.binary("sub", own, m0))
        lanes = code.open_loop(x0, x1, tile.lanes, stem=along.name)
        body.bind(along, lanes.variable)
        bind_vector(body, along, lanes.variable, x1, whole=False)
        address = self.at(own, lanes.variable)
        body.kept[id(self.sums)] = lambda value: load(code, tile, address, tile.lanes)
        points.write_point(body)
        body.vector = None
        for each in (lanes, column, rows):
            code.close_loop(each)
