"""Tiles whose lanes are neighbours in a row of the image.

If the windows of neighbouring rows of the product lie side by side (a convolution of stride 1), the
image is read as vectors where it is, and the other operand element by element. So the sums come out
as the epilogue reads them, column by column, and a product of few columns fills registers too.
"""

from __future__ import annotations

import math

import numpy as np

from ...kernel.index import Index
from ..code import Code
from ..dot import micro
from ..dot.micro import Operand, Tile, offset
from ..machine import Machine
from ..positions import uniform
from ..schedule import DEFAULT, Schedule
from ..types import Ref, computed
from .plan import Part
from .roles import size
from .tiles import CHUNK, CHUNKS, ROWS, Blocks, Tiles, offsets, table

MOST_VECTORS = 8
"""The most vectors of a tile: each has a pointer."""
FULL = 0.75
"""The least part of the lanes that a row of the image fills."""


def tile_along(part: Part, machine: Machine, schedule: Schedule) -> Tile | None:
    """The tile of a product: its rows are columns of the product, its vectors lie along the image.
    None if windows don't lie side by side, or rows of the image are short."""
    found = part.product
    kind = computed(found.dot.dtype)
    lanes = machine.vector_bytes // (8 if kind == "double" else 4)
    x = found.m[-1]
    vectors = -(-x.extent // lanes)
    if schedule != DEFAULT or machine.vector_bytes < 32 or part.image.offset.coefficient(x) != 1:
        return None
    if x.extent < max(lanes, FULL * vectors * lanes):
        return None
    sums = 24 if machine.vector_bytes == 64 else 12
    n = size(found.n)
    rows = min(
        (r for r in (12, 8, 6, 4, 3) if 2 * r <= sums),
        key=lambda r: (-(-n // r) * r, -r),
    )
    return Tile(kind, lanes, rows, min(sums // rows, MOST_VECTORS))


def blocks_along(part: Part, tile: Tile) -> Blocks:
    """The blocks of a product, by size alone. A block is of whole rows of the image, and of whole
    tiles if possible."""
    found = part.product
    m, items, k = size(found.m), size(found.batch), size(found.k)
    x = found.m[-1].extent
    unit = x * (tile.vectors // math.gcd(tile.vectors, -(-x // tile.lanes)))
    rows = max(ROWS // unit, 1) * unit
    count = -(-size(found.n) // tile.rows)
    wide, work = count, m * count * tile.rows * k * items

    def chunks() -> int:
        return items * -(-m // rows) * -(-count // wide)

    while wide > 1 and chunks() < CHUNKS and work // chunks() > 2 * CHUNK:
        wide = -(-wide // 2)
    return Blocks(rows, wide, 1)


class Along(Tiles):
    """The function that computes a chunk of such tiles, with all steps of the sum at once."""

    def write(self) -> None:
        code, tile = self.code, self.tile
        m0, m1, first, last, before = self.begin()
        pitch = -(-self.blocks.rows // tile.lanes) * tile.lanes
        self.turned = self.room(tile.rows * pitch + tile.columns, "sums of a block")
        found, place = self.found, self.rows.offset
        batch = Index(tuple((a, c) for a, c in place.terms if a in found.batch), place.const)
        image = self.at(self.body.buffer(self.rows.buffer), uniform(self.body, batch, None))
        starts, places = self.vectors()
        steps = self.body.table(table(found.k, place), "steps")
        x = self.size(found.m[-1].extent, "row of the image")
        each = self.size(-(-found.m[-1].extent // tile.lanes), "vectors of a row")
        v0, v1 = (code.binary("mul", code.binary("udiv", m, x), each) for m in (m0, m1))
        sums = self.at(self.turned, code.binary("sub", self.const(0), m0))
        step = self.times(self.k, tile.rows)
        start = self.times(code.binary("mul", code.binary("add", before, first), self.k), tile.rows)
        first_a = self.at(self.body.buffer(self.columns.buffer), start)
        panel = code.open_loop(first, last, 1, [first_a], stem="panel")
        ((a, _),) = panel.carried
        vector = code.open_loop(v0, v1, tile.vectors, stem="vector")
        given = [a, image, sums, self.pitch, self.k, steps]
        given += [self.entry_of(t, vector.variable) for t in (starts, places)]
        symbol = _micro(code, tile)
        code.add(f"call void {symbol}({', '.join(g.typed for g in given)})")
        code.close_loop(vector)
        self.finish(panel.variable, m0, m1)
        code.close_loop(panel, [self.at(a, step)])

    def vectors(self) -> tuple[Ref, Ref]:
        """Tables of where each vector begins, in the image and among the rows of the product. The
        last one of a row goes back to end with it. Behind the last row it is repeated, as a tile
        takes several."""
        found, tile = self.found, self.tile
        x = found.m[-1].extent
        begins = np.minimum(np.arange(0, x, tile.lanes), x - tile.lanes)
        places = (np.arange(0, size(found.m), x)[:, None] + begins).reshape(-1)
        places = np.pad(places, (0, tile.vectors - 1), "edge")
        starts = offsets(found.m, self.rows.offset)[places]
        return (
            self.body.table(starts.astype(np.int32).tobytes(), "vectors"),
            self.body.table(places.astype(np.int32).tobytes(), "places of vectors"),
        )


def _micro(code: Code, tile: Tile) -> str:
    """The symbol of a function that sets a tile of sums at sums[i * pitch + places[j]] to the sum
    over k of a[k * rows + i] * image[starts[j] + steps[k]]."""

    def write(inner: Code) -> None:
        a, image, sums, steps, starts, places = (
            Ref(f"%{n}", "ptr") for n in ("a", "image", "sums", "steps", "starts", "places")
        )
        at = [
            offset(inner, tile, image, micro.entry(inner, starts, j)) for j in range(tile.vectors)
        ]
        b = Operand(tuple(at), table=steps)
        held = micro.accumulate(
            inner, tile, micro.packed(a, tile.rows), b, Ref("%depth", "i64"), micro.zeros(tile)
        )
        rows = micro.multiples(inner, Ref("%pitch", "i64"), tile.rows)
        for j in range(tile.vectors):
            column = offset(inner, tile, sums, micro.entry(inner, places, j))
            for i, distance in enumerate(rows):
                place = offset(inner, tile, column, distance)
                value = held[i * tile.vectors + j]
                inner.add(f"store {value.typed}, ptr {place.text}, align {tile.itemsize}")

    parameters = (
        "ptr noalias %a, ptr noalias %image, ptr noalias %sums, i64 %pitch, i64 %depth, "
        "ptr noalias %steps, ptr noalias %starts, ptr noalias %places"
    )
    return code.function(f"along_{tile.rows}x{tile.vectors}", parameters, write)
