"""A contraction as a kernel of two phases: `b` is packed, then each chunk computes a block.

A chunk packs its rows of `a` itself, a block of K at a time, and sums a block of the result in
memory of its own. Then the epilogue takes it from there. The order of the additions follows from
the sizes alone.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

from ...kernel import Buffer, Kernel, Load, Value, collect
from ...kernel.analysis import analyzed
from ...kernel.index import Axis
from .. import phases
from ..arguments import Arguments
from ..body import Body
from ..code import Code, module_text
from ..form import Form
from ..machine import Machine
from ..phases import Phase, Written
from ..types import Ref, constant
from ..values import evaluate
from . import epilogue, matrix, micro, operand, output, packing, segments
from .cut import THIN, Tiling, points
from .micro import Tile
from .operand import Operand
from .output import Target

NARROW = 3
"""Up to so many panels of `b`, rows of `a` that can be read in place are not packed: that would
take longer than it saves in so few products."""
TURN = "turn"
ZERO, ONE = constant(0, "i64"), constant(1, "i64")


def write(kernel: Kernel, machine: Machine, cut: Tiling) -> Written:
    writer = _Writer(kernel, machine, cut)
    steps = [Phase("pack", cut.packing_chunks), Phase("tiles", cut.chunks)]
    body = writer.body(Code("kernel", "ptr %args, i64 %chunk"))
    phases.write_kernel(body, steps, cut.rounds)
    codes = [body.code, writer.pack(), writer.tiles()]
    codes += operand.write("pack_a", writer.a, kernel, machine, writer.arguments, writer.at_a)
    codes += operand.write("pack_b", writer.b, kernel, machine, writer.arguments, writer.at_b)
    if cut.turned:
        tile, dtype = cut.tile, cut.dot.dtype
        codes.append(packing.function(TURN, dtype, tile.columns, tile.lanes, along=True))
    if writer.in_place:
        codes.append(micro.function(cut.tile, a_packed=False))
    codes += [
        (matrix if writer.squares else micro).function(cut.tile),
        epilogue.write(kernel, machine, writer.arguments, cut),
    ]
    return Written(
        module_text(codes),
        writer.arguments,
        phases.chunks_of(steps, cut.rounds),
        cut.workspace,
        _packed(cut),
    )


def _packed(cut: Tiling) -> frozenset[Buffer] | None:
    """The buffers that are read to pack `b`; None if the workspace doesn't hold all of it."""
    if cut.rounds > 1:
        return None
    below: dict[int, Value] = {}
    collect(cut.b, below)
    return frozenset(v.buffer for v in below.values() if isinstance(v, Load))


class _Writer:
    """The phases of a contraction."""

    def __init__(self, kernel: Kernel, machine: Machine, cut: Tiling):
        self.kernel, self.machine, self.cut = kernel, machine, cut
        self.arguments = Arguments(kernel)
        self.a, self.b = Operand(cut, True), Operand(cut, False)
        self.in_place = (
            self.a.in_place and not cut.deep and cut.n.extent <= NARROW * cut.tile.columns
        )
        self.squares = cut.tile.step > 1
        analysis = analyzed(kernel)
        # The axes outside of the tile at whose positions the operands are packed.
        places = cut.outer + cut.deep
        self.at_a = tuple(x for x in places if x in analysis.axes(cut.a) or x in cut.deep)
        self.at_b = cut.shared + cut.deep

    def body(self, code: Code) -> Body:
        form = Form(None, 1, (), 1, 1, False)
        return Body(self.kernel, self.machine, form, evaluate, self.arguments, code)

    # Parts that the phases share.

    def _round(self, body: Body) -> tuple[Ref, Ref]:
        """The first point of `shared`, and the first column, of a round."""
        cut, code = self.cut, body.code
        if cut.rounds == 1:
            return ZERO, ZERO
        turn, across = self._split(body, Ref("%round", "i64"), cut.wide_rounds, "wide rounds")
        items, wide = (
            body.size(n, key, baked=False) for n, key in ((cut.items, "items"), (cut.wide, "wide"))
        )
        return code.binary("mul", turn, items), code.binary("mul", across, wide)

    def _exists(self, body: Body, item: Ref, column: Ref) -> str | None:
        """Begins the block of a chunk that exists: in the last round, chunks may lie beyond the
        end. Returns the label of the code behind it."""
        cut = self.cut
        if cut.rounds == 1:
            return None
        count = body.size(points(cut.shared), "points of shared", baked=False)
        columns = body.size(cut.n.extent, ("extent", cut.n.name))
        return self._begin(body, (item, count), (column, columns))

    @staticmethod
    def _begin(body: Body, *below: tuple[Ref, Ref]) -> str:
        """Begins the block where the first of each pair is below the second. Returns the label of
        the code behind it."""
        code = body.code
        tests = [code.compare("icmp ult", place, count) for place, count in below]
        condition = functools.reduce(functools.partial(code.binary, "and"), tests)
        go, end = code.fresh_label("inside"), code.fresh_label("end")
        code.add(f"br i1 {condition.text}, label %{go}, label %{end}")
        code.level.block(go)
        return end

    @staticmethod
    def _end(body: Body, label: str | None) -> None:
        if label is not None:
            body.code.add(f"br label %{label}")
            body.code.level.block(label)

    def _positions(self, body: Body, axes: Sequence[Axis], number: Ref) -> dict[Axis, Ref]:
        """The position along each of `axes` at the point with a row-major number."""
        code, out = body.code, {}
        for axis in reversed(axes[1:]):
            extent = body.extent(axis)
            out[axis] = code.binary("urem", number, extent)
            number = code.binary("udiv", number, extent)
        if axes:
            out[axes[0]] = number
        return out

    def _over_deep(self, body: Body):  # type: ignore[no-untyped-def]
        """A loop over the points of the other axes of K: (loop or None, number of the point)."""
        if not self.cut.deep:
            return None, ZERO
        count = body.size(points(self.cut.deep), "points of deep", baked=False)
        loop = body.code.open_loop(ZERO, count, 1, stem="deep")
        return loop, loop.variable

    def _split(self, body: Body, number: Ref, count: int, key: str) -> tuple[Ref, Ref]:
        """The quotient and the remainder of a number by a size."""
        if count == 1:
            # Part of the code: whether there is more than one changes little, but often is known.
            return number, ZERO
        divisor = body.size(count, key, baked=False)
        code = body.code
        return code.binary("udiv", number, divisor), code.binary("urem", number, divisor)

    def _panel_size(self, body: Body) -> Ref:
        """The number of elements in a packed panel of `b`."""
        return body.size(self.cut.summed * self.cut.tile.columns, "panel of b", baked=False)

    def _places(self, body: Body, first: Ref, count: Ref) -> tuple[Ref, Ref]:
        """The first place along K, and the number of them, in some elements of panels."""
        code, each = body.code, self.cut.tile.places
        if each == 1:
            return first, count
        begin, most = (code.binary("mul", x, constant(each, "i64")) for x in (first, count))
        whole = body.size(self.cut.k.extent, ("places of k", self.cut.k.name), baked=False)
        return begin, code.intrinsic("umin", [most, code.binary("sub", whole, begin)])

    # Phases.

    def pack(self) -> Code:
        """Chunks are groups of panels."""
        cut = self.cut
        body = self.body(phases.function("pack"))
        code, tile = body.code, cut.tile
        base, start = self._round(body)
        groups = -(-cut.panels // cut.panel_group)
        own, group = self._split(body, Ref("%chunk", "i64"), groups, "groups")
        item = code.binary("add", base, own)
        panel = code.binary("mul", group, body.size(cut.panel_group, "panel group", baked=False))
        column = code.binary("mul", panel, constant(tile.columns, "i64"))
        column = code.binary("add", start, column)
        end = self._exists(body, item, column)
        size = self._panel_size(body)
        last = code.intrinsic(
            "umin",
            [
                body.size(cut.n.extent, ("extent", cut.n.name)),
                code.binary("add", start, body.size(cut.wide, "wide", baked=False)),
            ],
        )
        left = code.binary("sub", last, column)
        most = body.size(cut.panel_group * tile.columns, "columns of a group", baked=False)
        count = code.intrinsic("umin", [left, most])
        panels = body.size(cut.panels, "panels", baked=False)
        first = code.binary("add", code.binary("mul", own, panels), panel)
        to = micro.offset(code, tile, body.workspace(), code.binary("mul", first, size))
        places = self._positions(body, cut.shared, item)
        extent = body.size(cut.length, ("extent of k", cut.k.name), baked=False)
        deep, number = self._over_deep(body)
        places |= self._positions(body, cut.deep, number)
        depth = body.size(cut.depth, "depth", baked=False)
        blocks = code.open_loop(ZERO, extent, depth, stem="k")
        here = code.intrinsic("umin", [depth, code.binary("sub", extent, blocks.variable)])
        before = code.binary("add", code.binary("mul", number, extent), blocks.variable)
        at = micro.offset(code, tile, to, code.binary("mul", before, constant(tile.columns, "i64")))
        given = [places[x].typed for x in self.at_b]
        span = self._places(body, blocks.variable, here)
        given += [column.typed, count.typed, *[r.typed for r in span], f"ptr {at.text}"]
        code.add(f"call void @pack_b(ptr %args, {', '.join(given)}, {size.typed})")
        code.close_loop(blocks)
        if deep is not None:
            code.close_loop(deep)
        self._end(body, end)
        return code

    def _chunk(self, body: Body) -> Chunk:
        """The place of a chunk in the result; begins its block."""
        cut, code = self.cut, body.code
        base, start = self._round(body)
        rest, number = self._split(body, Ref("%chunk", "i64"), cut.column_blocks, "column blocks")
        rows, columns = (
            body.size(n, key, baked=False)
            for n, key in ((cut.rows, "rows"), (cut.columns, "columns"))
        )
        column = code.binary("add", start, code.binary("mul", number, columns))
        extent = body.size(cut.length, ("extent of k", cut.k.name), baked=False)
        if cut.group is None:
            rest, block = self._split(body, rest, cut.row_blocks, "row blocks")
            own, free = self._split(body, rest, points(cut.free), "points of free")
            item = code.binary("add", base, own)
            row = code.binary("mul", block, rows)
            after = self._exists(body, item, column)
            places = self._positions(body, cut.shared, item)
            places |= self._positions(body, cut.free, free)
            end = body.size(cut.m.extent, ("extent", cut.m.name))
            return Chunk(own, number, places, row, end, column, (ZERO, extent), after)
        found = segments.find(body, cut, rest, rows, extent)
        own = code.binary("sub", found.group, base)
        after = self._begin(
            body,
            (own, body.size(cut.items, "items", baked=False)),
            (found.row, found.end),
            (column, body.size(cut.n.extent, ("extent", cut.n.name))),
        )
        places, span = {cut.group: found.group}, (ZERO, found.length)
        return Chunk(own, number, places, found.row, found.end, column, span, after)

    def tiles(self) -> Code:
        """Chunks are blocks of the result."""
        cut = self.cut
        body = self.body(phases.function("tiles"))
        code, tile = body.code, cut.tile
        if self.squares:
            matrix.begin(body)
        c = self._chunk(body)
        row, column = c.row, c.column
        rows, columns = (
            body.size(n, key, baked=False)
            for n, key in ((cut.rows, "rows"), (cut.columns, "columns"))
        )
        row_end, column_end = (
            code.intrinsic("umin", [code.binary("add", first, size), most])
            for first, size, most in (
                (row, rows, c.end),
                (column, columns, body.size(cut.n.extent, ("extent", cut.n.name))),
            )
        )
        height, width = code.binary("sub", row_end, row), code.binary("sub", column_end, column)
        places = c.places
        packed, sums = (
            code.let(f"alloca [{n} x {tile.kind}], align 64", "ptr")
            for n in (
                most_rows(cut) * cut.most[2] + packing.BEHIND * tile.lanes,
                most_rows(cut) * most_columns(cut),
            )
        )
        size = self._panel_size(body)
        panels = body.size(cut.panels, "panels", baked=False)
        each = body.size(cut.columns // tile.columns, "panels of a chunk", baked=False)
        first = code.binary(
            "add", code.binary("mul", c.item, panels), code.binary("mul", c.number, each)
        )
        b = micro.offset(code, tile, body.workspace(), code.binary("mul", first, size))
        target = Target(sums, columns)
        for axis, position in places.items():
            body.bind(axis, position)
        direct = output.direct(body, cut, row, column)
        span = c.span
        if cut.dot.segment is not None and cut.group is None:
            span = segments.bounds(body, cut.dot.segment)
        block = Block(row, height, width, span, target, direct)
        self._sum(body, places, block, packed, b)
        if cut.turned:
            self._finish(body, places, (row, row_end, column, column_end), turn(body, cut, block))
        elif direct is None:
            self._finish(body, places, (row, row_end, column, column_end), target)
        else:
            # Whole tiles are where they belong; the rest is below them and beside them.
            low = code.binary("add", row, whole(code, height, tile.rows))
            right = code.binary("add", column, whole(code, width, tile.columns))
            below = target.at(code, tile, code.binary("sub", low, row), ZERO)
            self._finish(body, places, (low, row_end, column, column_end), below)
            beside = target.at(code, tile, ZERO, code.binary("sub", right, column))
            self._finish(body, places, (row, low, right, column_end), beside)
        self._end(body, c.after)
        if self.squares:
            matrix.end(code)
        return code

    def _finish(
        self, body: Body, places: dict[Axis, Ref], bounds: tuple[Ref, ...], target: Target
    ) -> None:
        """Stores the rows and columns within bounds; their sums are at `target`."""
        given = [places[x].typed for x in self.cut.outer]
        given += [r.typed for r in (*bounds, target.start, target.row)]
        body.code.add(f"call void @{epilogue.NAME}(ptr %args, {', '.join(given)})")

    def _sum(self, body: Body, places: dict[Axis, Ref], block: Block, packed: Ref, b: Ref) -> None:
        """Sums a block; `packed` has room for its part of `a`, and `b` is packed."""
        cut, code, tile = self.cut, body.code, self.cut.tile
        row, height, width = block.row, block.height, block.width
        extent = body.size(cut.length, ("extent of k", cut.k.name), baked=False)
        depth = body.size(cut.depth, "depth", baked=False)
        size = self._panel_size(body)
        panel = body.size(cut.depth * tile.rows, "panel of a", baked=False)
        first, stop = block.span
        most = stop
        if cut.dot.segment is not None:  # a sum of nothing still writes its zeros
            most = code.intrinsic("umax", [stop, code.binary("add", first, ONE)])
        deep, number = self._over_deep(body)
        places = places | self._positions(body, cut.deep, number)
        blocks = code.open_loop(first, most, depth, stem="k")
        here = code.intrinsic("umin", [depth, code.binary("sub", stop, blocks.variable)])
        before = code.binary("add", code.binary("mul", number, extent), blocks.variable)
        fresh = code.compare("icmp eq", before, first)
        at_b = micro.offset(
            code, tile, b, code.binary("mul", before, constant(tile.columns, "i64"))
        )
        first = ZERO
        if self.in_place:
            first = whole(code, height, tile.rows)
            self._rows_in_place(body, block, (blocks.variable, here, fresh), first, at_b)
        given = [places[x].typed for x in self.at_a]
        given += [code.binary("add", row, first).typed, code.binary("sub", height, first).typed]
        span = self._places(body, blocks.variable, here)
        given += [r.typed for r in (*span, packed, panel)]
        code.add(f"call void @pack_a(ptr %args, {', '.join(given)})")
        # The tiles of a column together fetch the next panel of `b`, a part each.
        tiles = code.binary("add", code.binary("udiv", height, constant(tile.rows, "i64")), ONE)
        part = code.binary("udiv", code.binary("mul", here, constant(tile.columns, "i64")), tiles)
        across = code.open_loop(ZERO, width, tile.columns, [at_b], stem="column")
        ((panel_b, _),) = across.carried
        next_b = micro.offset(code, tile, panel_b, size)
        down = code.open_loop(first, height, tile.rows, [next_b], stem="row")
        ((ahead, _),) = down.carried
        number = code.binary("sub", down.variable, first)
        a = micro.offset(code, tile, packed, code.binary("mul", number, depth))
        c = block.target(code, tile, down.variable, across.variable)
        code.add(
            f"call void @{micro.name(a_packed=True)}({a.typed}, {panel_b.typed}, {c.start.typed}, "
            f"{c.row.typed}, {here.typed}, {fresh.typed}, {ahead.typed})"
        )
        code.close_loop(down, [micro.offset(code, tile, ahead, part)])
        code.close_loop(across, [next_b])
        code.close_loop(blocks)
        if deep is not None:
            code.close_loop(deep)

    def _rows_in_place(
        self, body: Body, block: Block, step: tuple[Ref, Ref, Ref], stop: Ref, b: Ref
    ) -> None:
        """The tiles up to the row `stop`, whose part of `a` isn't packed. step: (the place along K,
        the number of places, whether they are the first)."""
        code, tile = body.code, self.cut.tile
        k, depth, fresh = step
        start, distance, _ = operand.element(body, self.a, block.row, k)
        below = code.binary("mul", distance, constant(tile.rows, "i64"))
        down = code.open_loop(ZERO, stop, tile.rows, [start], stem="row")
        ((a, _),) = down.carried
        next_a = micro.offset(code, tile, a, below)
        across = code.open_loop(ZERO, block.width, tile.columns, [b], stem="column")
        ((panel, _),) = across.carried
        c = block.target(code, tile, down.variable, across.variable)
        code.add(
            f"call void @{micro.name(a_packed=False)}({a.typed}, {panel.typed}, {c.start.typed}, "
            f"{c.row.typed}, {depth.typed}, {fresh.typed}, {next_a.typed}, {distance.typed})"
        )
        code.close_loop(across, [micro.offset(code, tile, panel, self._panel_size(body))])
        code.close_loop(down, [next_a])


@dataclass(frozen=True)
class Chunk:
    """The place of a chunk. item, number: its place among the matrices, and among the blocks of
    columns, of its round. places: the positions along outer axes. row, column: the first ones. end:
    the end of its rows. span: the range of its sum along K. after: the label of the next code, if
    the chunk may have nothing to do."""

    item: Ref
    number: Ref
    places: dict[Axis, Ref]
    row: Ref
    end: Ref
    column: Ref
    span: tuple[Ref, Ref]
    after: str | None


@dataclass(frozen=True)
class Block:
    """The work of a chunk. span: the range along K. scratch: the memory of its sums. direct: the
    memory of whole tiles' sums, if that is the output."""

    row: Ref
    height: Ref
    width: Ref
    span: tuple[Ref, Ref]
    scratch: Target
    direct: Target | None

    def target(self, code: Code, tile: Tile, row: Ref, column: Ref) -> Target:
        """The memory in which the tile at a row and a column of the block is summed."""
        here = self.scratch.at(code, tile, row, column)
        if self.direct is None:
            return here
        there = self.direct.at(code, tile, row, column)
        inside = [
            code.compare("icmp ult", place, whole(code, size, step))
            for place, size, step in (
                (row, self.height, tile.rows),
                (column, self.width, tile.columns),
            )
        ]
        full = code.binary("and", inside[0], inside[1])
        return Target(
            code.select(full, there.start, here.start), code.select(full, there.row, here.row)
        )


def turn(body: Body, cut: Tiling, block: Block) -> Target:
    """The sums of a block transposed: panels of rows, column by column."""
    code, tile = body.code, cut.tile
    wide = tile.columns
    rows, columns = -(-most_rows(cut) // wide) * wide, -(-THIN // wide) * wide
    text = f"alloca [{rows * columns} x {tile.kind}], align 64"
    turned = code.let(text, "ptr", at=body.entry)
    # Up to the end of the last tile: there is memory, though nothing uses it.
    most = code.binary("add", block.width, constant(wide - 1, "i64"))
    width = code.binary("and", most, constant(-wide, "i64"))
    panel = code.binary("mul", width, constant(wide, "i64"))
    code.add(
        f"call void @{TURN}({block.scratch.start.typed}, {block.scratch.row.typed}, "
        f"{block.height.typed}, {width.typed}, {turned.typed}, {panel.typed})"
    )
    return Target(turned, panel)


def whole(code: Code, size: Ref, step: int) -> Ref:
    """The part of a size that is made of whole steps."""
    rest = code.binary("urem", size, constant(step, "i64"))
    return code.binary("sub", size, rest)


def most_rows(cut: Tiling) -> int:
    return -(-cut.most[0] // cut.tile.rows) * cut.tile.rows


def most_columns(cut: Tiling) -> int:
    return -(-cut.most[1] // cut.tile.columns) * cut.tile.columns
