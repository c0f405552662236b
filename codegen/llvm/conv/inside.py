"""Tiles that multiply nothing of the border.

The rows of such a tile are at one place of the windows, in different images (of the gradient of a
weight: at one tap, in different channels). So a step of the sum is inside of the image for all of
them or for none, and the steps outside are left out. Small images gain most: a kernel of 3x3 on 4x4
meets zeros in 31% of its steps.

The operand of the rows is packed in panels, [batch, panel, position.., other steps.., row]. It has
no border.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ...kernel import Buffer, Condition, Constant, Guard, Kernel, Load, Store
from ...kernel import index as ix
from ...kernel.canonical import collapsed
from ...kernel.index import Axis, Index
from ..dot import micro
from ..dot.micro import Tile, tile_for
from ..machine import CannotLower, Machine
from ..positions import uniform
from ..schedule import DEFAULT, Schedule
from ..types import Ref, computed
from .operands import Window, inside_of, moved, rewritten, strides_of, windows
from .plan import Part, Plan
from .roles import Product, size
from .tiles import CHUNK, CHUNKS, STEPS, SUMS, Blocks, Tiles, table

PACKING = 64
"""Products that take as long as it takes more to pack an element for such tiles."""
RUN = 6
"""Steps that take as long as a run takes to begin and to end."""
MOST_SUMS = 1 << 18
"""The most bytes of sums in a panel of a block, which stay in the second level of cache."""


@dataclass(frozen=True)
class Moving:
    """What the windows of a product move along.

    windows: their dimensions, the slowest first. rows, taps: the axis of rows and of steps that
    each moves along. across: the other axes of rows. others: the other axes of steps.
    """

    windows: tuple[Window, ...]
    rows: tuple[Axis, ...]
    taps: tuple[Axis, ...]
    across: tuple[Axis, ...]
    others: tuple[Axis, ...]

    def insides(self) -> list[np.ndarray]:
        """For each window, whether [row, tap] is inside of the image."""
        found = []
        for window, row, tap in zip(self.windows, self.rows, self.taps):
            along = np.arange(row.extent)[:, None] * window.position.coefficient(row)
            along = along + np.arange(tap.extent) * window.position.coefficient(tap)
            along += window.position.const
            found.append((along >= window.first) & (along <= window.last))
        return found

    def pieces(self) -> int:
        """The pieces of the steps that follow each other, which have at most STEPS."""
        return -(-self.taps[-1].extent * size(self.others) // STEPS)


def moving_of(found: Product) -> Moving | None:
    """None unless windows with a border move along the last axes of the rows, each along one axis
    of steps."""
    dims = windows(found.rows)
    moving = [w for w in dims if len(w.axes) == 2]
    bordered = [w for w in dims if w.inside < w.extent]
    by_row = {a: w for w in moving for a in w.axes if a in found.m}
    rows = tuple(a for a in found.m if a in by_row)
    ordered = tuple(by_row[a] for a in rows)
    taps = tuple(a for w in ordered for a in w.axes if a in found.k)
    across = found.m[: len(found.m) - len(rows)]
    if not bordered or any(len(w.axes) != 2 for w in bordered) or (*across, *rows) != found.m:
        return None
    if not across or not len(moving) == len(rows) == len(taps):
        return None
    return Moving(ordered, rows, taps, across, tuple(a for a in found.k if a not in taps))


def plan_inside(plan: Plan, machine: Machine, schedule: Schedule) -> tuple[Plan, Tile] | None:
    """A plan whose one part has such tiles; None if they don't pay."""
    if len(plan.parts) != 1 or schedule != DEFAULT:
        return None
    (part,) = plan.parts
    try:
        moving = moving_of(part.product)
        if moving is None:
            return None
        found = replace(part.product, k=(*moving.taps, *moving.others))
        tile = _tile(machine, computed(found.dot.dtype), size(moving.across), size(found.n))
        if not _pays(found, moving, tile):
            return None
        kernels, image = _packed(found, moving, tile.rows)
    except CannotLower:
        return None
    return Plan([Part(part.kernel, found, image)], plan.rest, kernels), tile


def _tile(machine: Machine, kind: str, across: int, columns: int) -> Tile:
    """The tile that leaves least of the last ones empty. A step takes about as long as its vectors
    of sums and four more."""
    tile = tile_for(machine, kind, columns)
    if tile.vectors == 1 or machine.vector_bytes == 16:
        return tile
    shapes = ((12, 2), (9, 2), (8, 2)) if machine.vector_bytes == 64 else ((6, 2), (4, 3))

    def cost(shape: tuple[int, int]) -> int:
        rows, vectors = shape
        return -(-across // rows) * -(-columns // (vectors * tile.lanes)) * (rows * vectors + 4)

    rows, vectors = min(shapes, key=cost)
    return replace(tile, rows=rows, vectors=vectors)


def _pays(found: Product, moving: Moving, tile: Tile) -> bool:
    """Whether the products that are left out take longer than all that comes with these tiles."""
    places, across, insides = size(moving.rows), size(moving.across), moving.insides()
    if places * tile.rows * tile.columns * tile.itemsize > MOST_SUMS:
        return False
    if not all(each.any(1).all() for each in insides):
        return False  # a place without a run has no sums
    shares = [float(each.mean()) for each in insides]
    runs = size(moving.taps[:-1]) * moving.pieces() * math.prod(shares[:-1])
    steps = math.prod(shares) * size(found.k) + RUN * runs
    rows = -(-across // tile.rows) * tile.rows
    each = size(found.n) * size(found.batch)
    saved = places * (across * size(found.k) - rows * steps) * each
    image = rows * math.prod(w.inside for w in moving.windows) * size(moving.others)
    return saved >= PACKING * (image * size(found.batch) + size(found.k) * each)


def blocks_inside(part: Part, tile: Tile) -> Blocks:
    """The blocks of a product, by size alone. A block is one tile at each place of the windows."""
    found = part.product
    moving = moving_of(found)
    assert moving is not None
    rows = size(moving.rows) * tile.rows
    count = -(-size(found.n) // tile.columns)
    wide = min(count, max(SUMS // (rows * tile.columns * tile.itemsize), 1))
    work = size(found.m) * count * tile.columns * size(found.k) * size(found.batch)

    def chunks() -> int:
        return size(found.batch) * -(-size(found.m) // rows) * -(-count // wide)

    while wide > 1 and chunks() < CHUNKS and work // chunks() > 2 * CHUNK:
        wide = -(-wide // 2)
    return Blocks(rows, wide, moving.pieces())


def _packed(found: Product, moving: Moving, width: int) -> tuple[list[Kernel], Load]:
    """The kernels that pack the rows' operand, and a load of the result in its place, in the first
    panel. The last panel is filled up with zeros."""
    dtype, value = found.dot.dtype, inside_of(found.rows)
    places = [Axis(f"w{i}", w.inside) for i, w in enumerate(moving.windows)]
    extents, across = [a.extent for a in moving.across], size(moving.across)
    panel, lane = Axis("panel", -(-across // width)), Axis("lane", width)
    dims = [*found.batch, panel, *places, *moving.others, lane]
    strides = strides_of([a.extent for a in dims])
    buffer = Buffer("image", dtype, math.prod(a.extent for a in dims))

    def kernel(name: str, first: int, count: int) -> Kernel:
        own = Axis("panel", count)
        row = (ix.of(own) + first) * width + ix.of(lane)
        axes = dict(zip(moving.across, ix.delinearize(row, extents)))
        stored = rewritten(
            value, lambda index: ix.substitute(moved(index, moving.windows, places), axes)
        )
        if (first + count) * width > across:
            zero = Constant(dtype.np.type(0), dtype)
            stored = Guard((Condition(row, 0, across),), stored, zero, dtype)
        parallel = [*found.batch, own, *places, *moving.others, lane]
        start = first * strides[len(found.batch)]
        store = Store(buffer, ix.linearize([ix.of(a) for a in parallel], strides, start), stored)
        kept = tuple(a for a in parallel if a.extent != 1)
        made = Kernel(name, kept, (), (store,))
        return collapsed(made, [[a for a in kept if a is not lane]])

    whole = across // width
    kernels = [kernel("image", 0, whole)] if whole else []
    if across % width:
        kernels.append(kernel("image_rest", whole, 1))
    at = [*map(ix.of, found.batch), ix.constant(0)]
    at += [w.position - w.first for w in moving.windows]
    at += [*map(ix.of, moving.others), ix.constant(0)]
    return kernels, Load(buffer, ix.linearize(at, strides), dtype)


@dataclass(frozen=True)
class Runs:
    """The steps that are inside, in pieces: those of piece i are `runs[begins[i] : begins[i + 1]]`,
    each (place of the windows, first step, number of steps, whether it is the place's first run).
    """

    begins: np.ndarray
    runs: np.ndarray


def runs_of(moving: Moving) -> Runs:
    steps = size(moving.others)
    *outer, last = moving.insides()
    length = moving.taps[-1].extent * steps
    most = -(-length // moving.pieces())
    first, count = last.argmax(1) * steps, last.sum(1) * steps
    begins, runs, seen = [0], list[tuple[int, int, int, bool]](), set[int]()
    for number, taps in enumerate(np.ndindex(*(a.extent for a in moving.taps[:-1]))):
        met = np.ones((), bool)
        for each, tap in zip(outer, taps):
            met = met[..., None] & each[:, tap]
        for start in range(0, length, most):
            low, high = np.maximum(first, start), np.minimum(first + count, start + most)
            for place in map(int, np.flatnonzero(met[..., None] & (low < high))):
                begin, end = (int(each[place % len(low)]) for each in (low, high))
                runs.append((place, number * length + begin, end - begin, place not in seen))
                seen.add(place)
            begins.append(len(runs))
    runs.append((0, 0, 0, False))  # what is fetched ahead behind the last piece
    return Runs(np.array(begins, np.int32), np.array(runs, np.int32))


class Inside(Tiles):
    """The function that computes a chunk of such tiles."""

    def add_products(self, m0: Ref, m1: Ref, first: Ref, last: Ref, before: Ref) -> None:
        code, body, tile, found = self.code, self.body, self.tile, self.found
        runs, place = runs_of(self.moving), self.rows.offset
        batch = Index(tuple((a, c) for a, c in place.terms if a in found.batch), place.const)
        image = self.at(body.buffer(self.rows.buffer), uniform(body, batch, None))
        count = -(-size(self.moving.across) // tile.rows) * size(found.batch)
        pitch = self.size(self.rows.buffer.size // count, "panel of rows")
        image = self.at(image, code.binary("mul", code.binary("udiv", m0, self.block[0]), pitch))
        at_places = body.table(table(self.moving.rows, place), "places")
        at_steps = body.table(table(found.k, place), "steps")
        begins = body.table(runs.begins.tobytes(), "pieces")
        listed = body.table(runs.runs.tobytes(), "runs")
        step = self.times(self.k, tile.columns)
        start = code.binary("mul", code.binary("add", before, first), step)
        first_b = self.at(body.buffer(self.columns.buffer), start)
        pieces = self.size(len(runs.begins) - 1, "pieces of the sum")
        piece = code.open_loop(self.const(0), pieces, stem="piece")
        each = self.entry_of(begins, piece.variable)
        run0, run1 = micro.entry(code, each, 0), micro.entry(code, each, 1)
        following = micro.entry(code, self.entry_of(listed, self.times(run1, 4)), 1)
        panel = code.open_loop(first, last, 1, [first_b], stem="panel")
        ((b, _),) = panel.carried
        next_b = self.at(b, step)
        is_last = code.compare("icmp eq", code.binary("add", panel.variable, self.const(1)), last)
        sums = self.sums_of(code.binary("sub", panel.variable, first))
        run = code.open_loop(run0, run1, stem="run")
        entry = self.entry_of(listed, self.times(run.variable, 4))
        at_place, at_step, depth, is_first = (micro.entry(code, entry, i) for i in range(4))
        # The runs of a panel together fetch the next one, or that of the next piece, a part each.
        soon = self.at(
            code.select(is_last, first_b, next_b),
            self.times(code.select(is_last, following, at_step), tile.columns),
        )
        fetched = micro.LINE // (tile.itemsize * micro.UNROLL)
        turns = self.const(tile.columns // fetched)
        turn = code.binary("urem", code.binary("sub", run.variable, run0), turns)
        given = [
            self.at(image, micro.entry(code, self.entry_of(at_places, at_place), 0)),
            self.at(b, self.times(at_step, tile.columns)),
            self.at(sums, self.times(at_place, tile.rows * tile.columns)),
            self.const(tile.columns),
            depth,
            code.compare("icmp ne", is_first, self.const(0)),
            self.at(soon, code.binary("mul", turn, self.times(depth, fetched))),
            self.entry_of(at_steps, at_step),
        ]
        symbol = micro.stepping(code, tile)
        code.add(f"call void {symbol}({', '.join(g.typed for g in given)})")
        code.close_loop(run)
        code.close_loop(panel, [next_b])
        code.close_loop(piece)

    @property
    def moving(self) -> Moving:
        moving = moving_of(self.found)
        assert moving is not None
        return moving

    def row_of_sums(self, row: Ref) -> Ref:
        rows, lanes = self.tile.rows, self.tile.lanes
        order = np.arange(self.blocks.rows, dtype=np.int32).reshape(-1, rows).T.reshape(-1)
        order = np.pad(order, (0, -order.size % lanes), "edge")
        table_ = self.body.table(order.tobytes(), "order of sums")
        return micro.entry(self.code, self.entry_of(table_, row), 0)
