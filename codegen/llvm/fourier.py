"""Discrete Fourier transforms of many lines: each lane of a vector transforms a line of its own.

Stockham's algorithm sorts while it computes: a pass reads one buffer and writes another, and needs
no order of bits. The buffers of a block of lines stay in the cache. A line is of complex numbers,
or a lane takes two real lines as the two parts of one complex line, from whose transform those of
both follow.

The inverse transform is the forward one with the two parts of all numbers exchanged. A transform of
a size that has no small factors is a convolution of a longer one that has (Bluestein, "A linear
filtering approach to the computation of discrete Fourier transform", 1970).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .butterflies import RADICES, Pair, define_pass, load, store, times
from .code import Code, Loop, module_text
from .machine import Machine
from .math.expression import Expr, where
from .types import Ref, constant, lane_numbers, suffix, vector

NUMBERS = (
    "size length first last blocks lines read_outer read_line read_step write_outer write_line "
    "write_step inverse"
).split()
"""The int64 arguments of a kernel, before the counts of passes of each radix. size: of the passes.
length: of the transform, the same unless that is a convolution. first, last: the blocks to compute,
of which each outer place has `blocks`, for its `lines`. Strides count elements, real or complex as
they are in memory."""


class Line(Enum):
    """How a line lies in memory."""

    COMPLEX = "complex"
    REAL = "real"
    HALF = "half"  # the first half of the complex transform of a real line


class Way(Enum):
    """Which neighbours in memory a kernel can count on."""

    ROWS = "rows"  # the numbers of a line
    BESIDE = "beside"  # the same number of all lines
    APART = "apart"


@dataclass(frozen=True)
class Form:
    """A kernel: the type of its parts, what it reads and writes and how that lies in memory, and
    whether results are turned: multiplied by a table of complex numbers [size, lines].

    convolves: whether it computes by a convolution, for which its table has the numbers
    exp(-pi i j^2 / length), and from place `size` on the transform of their conjugates.
    """

    kind: str
    reads: Line = Line.COMPLEX
    writes: Line = Line.COMPLEX
    reads_way: Way = Way.ROWS
    writes_way: Way = Way.ROWS
    turned: bool = False
    convolves: bool = False

    @property
    def itemsize(self) -> int:
        return 4 if self.kind == "float" else 8

    def lanes(self, machine: Machine) -> int:
        return machine.vector_bytes // self.itemsize

    @property
    def pairs(self) -> bool:
        """Whether a lane takes two real lines."""
        return Line.REAL in (self.reads, self.writes)

    def lines(self, machine: Machine) -> int:
        """The lines of a block."""
        return self.lanes(machine) * (2 if self.pairs else 1)


def emit(form: Form, machine: Machine) -> str:
    """The module, whose function `kernel` takes pointers (input, output, work, the tables of the
    passes, the table of the turns, numbers) and the factor of the results, a double."""
    return module_text([_Kernel(form, form.lanes(machine)).code]) + machine.attributes


class _Kernel:
    def __init__(self, form: Form, lanes: int):
        self.form, self.lanes = form, lanes
        parameters = "ptr %in, ptr %out, ptr %work, ptr %passes, ptr %turns, ptr %n, double %factor"
        self.code = code = Code("kernel", parameters)
        numbers = [self._number(i) for i in range(len(NUMBERS) + len(RADICES))]
        self.of = dict(zip(NUMBERS, numbers, strict=False))
        self.counts = numbers[len(NUMBERS) :]
        self.inverse = code.compare("icmp ne", self.of["inverse"], self._int(0))
        factor = Ref("%factor", "double")
        self.factor = factor if form.kind == "double" else code.convert("fptrunc", factor, "float")
        self.whole = False
        # The second buffer begins behind the first one and what its last tile has too much.
        behind = self._add(self.of["size"], self._int(lanes))
        self.buffer = Ref("%work", "ptr"), self._at(Ref("%work", "ptr"), behind)
        loop = code.open_loop(self.of["first"], self.of["last"])
        self._block(loop.variable)
        code.close_loop(loop)

    # Integers and addresses.

    def _int(self, value: int) -> Ref:
        return constant(value, "i64")

    def _number(self, place: int) -> Ref:
        at = self.code.let(f"getelementptr i64, ptr %n, i64 {place}", "ptr")
        return self.code.let(f"load i64, {at.typed}, align 8", "i64")

    def _add(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("add", a, b)

    def _mul(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("mul", a, b)

    def _element(self, kind: str, base: Ref, index: Ref) -> Ref:
        return self.code.let(f"getelementptr {kind}, {base.typed}, {index.typed}", "ptr")

    def _at(self, buffer: Ref, place: Ref) -> Ref:
        """A complex vector of a buffer."""
        return self._element(f"[{2 * self.lanes} x {self.form.kind}]", buffer, place)

    # Vectors.

    def _load(self, buffer: Ref, place: Ref) -> Pair:
        return load(self.code, self._at(buffer, place), self.form.kind, self.lanes)

    def _store(self, value: Pair, buffer: Ref, place: Ref) -> None:
        store(self.code, value, self._at(buffer, place), self.form.kind, self.lanes)

    def _exchanged(self, value: Pair) -> Pair:
        """The parts, exchanged for an inverse transform."""
        a, b = value
        inverse = Expr(self.code, self.inverse)
        return where(inverse, b, a), where(inverse, a, b)

    # A block of lines.

    def _block(self, block: Ref) -> None:
        code, form = self.code, self.form
        outer = code.binary("sdiv", block, self.of["blocks"])
        block = code.binary("sub", block, self._mul(outer, self.of["blocks"]))
        lines = self.lanes * (2 if Line.REAL in (form.reads, form.writes) else 1)
        self.first = self._mul(block, self._int(lines))
        self.rest = code.binary("sub", self.of["lines"], self.first)
        self.is_full = code.compare("icmp sge", self.rest, self._int(lines))
        parts = self.rest if lines > self.lanes else self._mul(self.rest, self._int(2))
        self.mask = self._mask(2 * self.lanes, parts)
        self._read(self._mul(outer, self.of["read_outer"]))
        if form.convolves:
            self._clear(self.buffer[0])
        source, target = self._passes(*self.buffer)
        if form.convolves:
            self._filter(source)
            source, target = self._passes(source, target)
        self._write(source, self._mul(outer, self.of["write_outer"]))

    def _passes(self, source: Ref, target: Ref) -> tuple[Ref, Ref]:
        """All passes; the buffer that has the result, and the other one."""
        code = self.code
        left, step, table = self.of["size"], self._int(1), Ref("%passes", "ptr")
        for radix, count in zip(RADICES, self.counts, strict=True):
            loop = code.open_loop(self._int(0), count, 1, (source, target, left, step, table))
            source, target, left, step, table = (phi for phi, _ in loop.carried)
            part = code.binary("sdiv", left, self._int(radix))
            name = f"tw_pass_{radix}"
            define_pass(code, name, radix, self.form.kind, self.lanes)
            args = (source, target, part, step, table)
            code.add(f"call void @{name}({', '.join(a.typed for a in args)})")
            table = self._element(
                self.form.kind, table, self._mul(part, self._int(2 * (radix - 1)))
            )
            step = self._mul(step, self._int(radix))
            source, target, left, step, table = code.close_loop(
                loop, (target, source, part, step, table)
            )
        return source, target

    # The convolution.

    def _clear(self, buffer: Ref) -> None:
        loop = self.code.open_loop(self.of["length"], self.of["size"])
        zero = Expr(self.code, constant(0, self.form.kind, self.lanes))
        self._store((zero, zero), buffer, loop.variable)
        self.code.close_loop(loop)

    def _filter(self, buffer: Ref) -> None:
        """Multiply by the transform of the filter, and exchange the parts: what follows is an
        inverse transform."""
        loop = self.code.open_loop(self._int(0), self.of["size"])
        k = loop.variable
        a, b = times(self._load(buffer, k), self._factor(self._add(k, self.of["size"])))
        self._store((b, a), buffer, k)
        self.code.close_loop(loop)

    def _factor(self, place: Ref) -> Pair:
        """A number of the table, in all lanes."""
        code, kind = self.code, self.form.kind
        at = self._base(Ref("%turns", "ptr"), Line.COMPLEX, place)
        parts = []
        for cell in (at, self._element(kind, at, self._int(1))):
            number = code.let(f"load {kind}, {cell.typed}", kind)
            parts.append(Expr(code, code.splat(number, self.lanes)))
        return parts[0], parts[1]

    def _enter(self, value: Pair, place: Ref) -> None:
        """A number of the lines, on its way to the passes."""
        if self.form.convolves:
            value = times(value, self._factor(place))
        self._store(value, self.buffer[0], place)

    def _result(self, source: Ref, place: Ref, factor: Expr) -> Pair:
        a, b = self._load(source, place)
        if self.form.convolves:
            a, b = times((b, a), self._factor(place))
        return a * factor, b * factor

    def _mask(self, width: int, rest: Ref) -> Ref:
        numbers = Ref(lane_numbers(width, "i64"), "i64", width)
        return self.code.compare("icmp slt", numbers, rest)

    def _offsets(self, stride: Ref, pairs: int | None) -> tuple[Ref, Ref]:
        """The offset of each lane's line, and whether it exists. pairs: the one of two lines."""
        step = 1 if pairs is None else 2
        numbers = ", ".join(f"i64 {i * step + (pairs or 0)}" for i in range(self.lanes))
        number = Ref(f"<{numbers}>", "i64", self.lanes)
        exists = self.code.compare("icmp slt", number, self.rest)
        line = self._add(number, self.first)
        return self._mul(line, stride), exists

    # Memory.

    def _needed(self, mask: Ref) -> Ref:
        return constant(True, "i1", mask.lanes) if self.whole else mask

    def _read_vector(self, at: Ref, lanes: int, mask: Ref) -> Ref:
        """Elements that lie side by side, zero where the mask says so."""
        kind, align = self.form.kind, self.form.itemsize
        full = vector(kind, lanes)
        if self.whole:
            return self.code.let(f"load {full}, {at.typed}, align {align}", kind, lanes)
        symbol = f"@llvm.masked.load.{suffix(kind, lanes)}.p0"
        self.code.declare(f"declare {full} {symbol}(ptr, i32, <{lanes} x i1>, {full})")
        text = (
            f"call {full} {symbol}({at.typed}, i32 {align}, {mask.typed}, {full} zeroinitializer)"
        )
        return self.code.let(text, kind, lanes)

    def _write_vector(self, value: Ref, at: Ref, mask: Ref) -> None:
        align, full = self.form.itemsize, value.full_type
        if self.whole:
            self.code.add(f"store {value.typed}, {at.typed}, align {align}")
            return
        symbol = f"@llvm.masked.store.{suffix(value.type, value.lanes)}.p0"
        self.code.declare(f"declare void {symbol}({full}, ptr, i32, <{value.lanes} x i1>)")
        self.code.add(f"call void {symbol}({value.typed}, {at.typed}, i32 {align}, {mask.typed})")

    def _gather(self, kind: str, base: Ref, offsets: Ref, exists: Ref) -> Ref:
        code, lanes = self.code, self.lanes
        full, exists = vector(kind, lanes), self._needed(exists)
        at = code.let(f"getelementptr {kind}, {base.typed}, {offsets.typed}", "ptr", lanes)
        symbol = f"@llvm.masked.gather.{suffix(kind, lanes)}.v{lanes}p0"
        code.declare(f"declare {full} {symbol}(<{lanes} x ptr>, i32, <{lanes} x i1>, {full})")
        return code.let(
            f"call {full} {symbol}(<{lanes} x ptr> {at.text}, i32 {self.form.itemsize}, "
            f"{exists.typed}, {full} zeroinitializer)",
            kind,
            lanes,
        )

    def _scatter(self, value: Ref, base: Ref, offsets: Ref, exists: Ref) -> None:
        code, lanes, kind = self.code, self.lanes, value.type
        exists = self._needed(exists)
        at = code.let(f"getelementptr {kind}, {base.typed}, {offsets.typed}", "ptr", lanes)
        symbol = f"@llvm.masked.scatter.{suffix(kind, lanes)}.v{lanes}p0"
        code.declare(
            f"declare void {symbol}({value.full_type}, <{lanes} x ptr>, i32, <{lanes} x i1>)"
        )
        code.add(
            f"call void {symbol}({value.typed}, <{lanes} x ptr> {at.text}, "
            f"i32 {self.form.itemsize}, {exists.typed})"
        )

    def _apart(self, both: Ref) -> Pair:
        """The parts of complex numbers that alternate."""
        full = both.full_type
        parts = []
        for part in range(2):
            order = ", ".join(f"i32 {2 * i + part}" for i in range(self.lanes))
            text = f"shufflevector {both.typed}, {full} poison, <{self.lanes} x i32> <{order}>"
            parts.append(Expr(self.code, self.code.let(text, self.form.kind, self.lanes)))
        return parts[0], parts[1]

    def _together(self, value: Pair) -> Ref:
        a, b = (x.ref for x in value)
        order = ", ".join(f"i32 {i}, i32 {i + self.lanes}" for i in range(self.lanes))
        text = f"shufflevector {a.typed}, {b.typed}, <{2 * self.lanes} x i32> <{order}>"
        return self.code.let(text, self.form.kind, 2 * self.lanes)

    def _complex(self, base: Ref, offsets: Ref, exists: Ref) -> Pair:
        """Complex numbers of as many lines. A complex64 is read as one number of 64 bits."""
        code, lanes = self.code, self.lanes
        if self.form.kind == "float":
            words = self._gather("i64", base, offsets, exists)
            text = f"bitcast {words.typed} to <{2 * lanes} x float>"
            return self._apart(code.let(text, "float", 2 * lanes))
        offsets = code.binary("shl", offsets, self._int(1))
        second = self._element("double", base, self._int(1))
        return (
            Expr(code, self._gather("double", base, offsets, exists)),
            Expr(code, self._gather("double", second, offsets, exists)),
        )

    def _put_complex(self, value: Pair, base: Ref, offsets: Ref, exists: Ref) -> None:
        code, lanes = self.code, self.lanes
        if self.form.kind == "float":
            both = self._together(value)
            words = code.let(f"bitcast {both.typed} to <{lanes} x i64>", "i64", lanes)
            self._scatter(words, base, offsets, exists)
            return
        offsets = code.binary("shl", offsets, self._int(1))
        second = self._element("double", base, self._int(1))
        self._scatter(value[0].ref, base, offsets, exists)
        self._scatter(value[1].ref, second, offsets, exists)

    def _base(self, base: Ref, line: Line, offset: Ref) -> Ref:
        kind = self.form.kind if line is Line.REAL else f"[2 x {self.form.kind}]"
        return self._element(kind, base, offset)

    def _masked(self, at: Ref, mask: Ref) -> Pair:
        """Complex numbers that lie side by side."""
        return self._apart(self._read_vector(at, 2 * self.lanes, mask))

    def _put_masked(self, value: Pair, at: Ref, mask: Ref) -> None:
        self._write_vector(self._together(value), at, mask)

    def _beside(self, base: Ref, line: Line) -> Ref:
        """The address of this block's lines, which lie side by side."""
        return self._base(base, line, self.first)

    def _read(self, outer: Ref) -> None:
        code, form = self.code, self.form
        base = self._base(Ref("%in", "ptr"), form.reads, outer)
        lines = self._lines(form.reads, form.reads_way, self.of["read_line"])
        for loop, places in self._walk(form.reads, form.reads_way):
            k = loop.variable
            here = self._base(base, form.reads, self._mul(k, self.of["read_step"]))
            self._fetch(base, form.reads, form.reads_way, k, "read", False)
            if form.reads_way is Way.BESIDE:
                columns = [[self._masked(self._beside(here, form.reads), self.mask)]]
            elif form.reads_way is Way.ROWS:
                columns = self._columns(form.reads, here, lines, code.binary("sub", loop.stop, k))
            elif form.reads is Line.REAL:
                a, b = (Expr(code, self._gather(form.kind, here, *line)) for line in lines)
                columns = [[(a, b)]]
            else:
                columns = [[self._complex(here, *line) for line in lines]]
            for place, found in zip(places, columns, strict=True):
                if form.reads is Line.HALF:
                    self._put_halves(place, *found)
                else:
                    self._enter(self._exchanged(found[0]), place)

    def _walk(self, line: Line, way: Way) -> Iterator[tuple[Loop, list[Ref]]]:
        """Loops over the numbers of a line in memory, and those that a step takes: first the steps
        for which all numbers of all lines are there, without masks, for masked stores take ten
        times as long on some processors."""
        code = self.code
        count = self.of["length"]
        if line is Line.HALF:
            count = self._add(code.binary("sdiv", count, self._int(2)), self._int(1))
        step = self._tile(line) if way is Way.ROWS else 1
        even = code.binary("sub", count, code.binary("srem", count, self._int(step)))
        middle = code.select(self.is_full, even, self._int(0))
        for start, stop in ((self._int(0), middle), (middle, count)):
            self.whole = stop is middle
            loop = code.open_loop(start, stop, step)
            places = [loop.variable]
            places += [self._add(loop.variable, self._int(i)) for i in range(1, step)]
            yield loop, places
            code.close_loop(loop)
        self.whole = False

    def _lines(self, line: Line, way: Way, stride: Ref) -> list[Any]:
        """What is known of the lines of a block before its loop."""
        if way is Way.BESIDE:
            return []
        pairs = Line.REAL in (self.form.reads, self.form.writes)
        parts: list[int | None] = [0, 1] if pairs else [None]
        if way is Way.APART:
            return [self._offsets(stride, part) for part in parts]
        return [self._rows(stride, part) for part in parts]

    def _rows(self, stride: Ref, part: int | None) -> list[tuple[Ref, Ref]]:
        """The offset of each line, of the last one for those behind it, and whether it exists."""
        code, found = self.code, []
        last = code.binary("sub", self.rest, self._int(1))
        for i in range(self.lanes):
            number = self._int(i if part is None else 2 * i + part)
            exists = code.compare("icmp slt", number, self.rest)
            line = self._add(self.first, code.select(exists, number, last))
            found.append((self._mul(line, stride), exists))
        return found

    def _tile(self, line: Line) -> int:
        """The numbers of a line that are a vector."""
        return self.lanes if line is Line.REAL else self.lanes // 2

    def _part_mask(self, line: Line, rest: Ref) -> Ref:
        """Which parts of a vector of a line exist."""
        width = self.lanes // self._tile(line)
        return self._mask(self.lanes, self._mul(rest, self._int(width)))

    def _fetch(
        self, base: Ref, line: Line, way: Way, place: Ref, name: str, to_write: bool
    ) -> None:
        """Fetch as much of the next block of lines as a step takes of this one. Steps go to and fro
        in memory, which processors don't foresee."""
        code, lines = self.code, self.lanes * (2 if self.form.pairs else 1)
        following = self._add(self.first, self._int(lines))
        if way is Way.ROWS:  # one piece of memory
            taken = self._tile(line) * lines
            start = self._mul(following, self.of[f"{name}_line"])
            at = self._add(start, self._mul(place, self._int(lines)))
        elif way is Way.BESIDE:
            taken, at = lines, self._add(following, self._mul(place, self.of[f"{name}_step"]))
        else:
            return
        size = self.form.itemsize * (1 if line is Line.REAL else 2)
        cells = self._base(base, line, at)
        for byte in range(0, taken * size, 64):
            code.prefetch(code.let(f"getelementptr i8, {cells.typed}, i64 {byte}", "ptr"), to_write)

    def _columns(self, line: Line, here: Ref, lines: list[Any], rest: Ref) -> list[list[Pair]]:
        """For each number of a tile, what the lanes read of it: a complex number, or two."""
        mask = self._part_mask(line, rest)
        turned = [self._transposed(line, [
            self._row(line, here, offset, mask) for offset, _ in rows
        ]) for rows in lines]  # fmt: skip
        if line is Line.REAL:
            return [
                [(Expr(self.code, a), Expr(self.code, b))] for a, b in zip(*turned, strict=True)
            ]
        return [[self._apart(x) for x in found] for found in zip(*turned, strict=True)]

    def _row(self, line: Line, here: Ref, offset: Ref, mask: Ref) -> Ref:
        return self._read_vector(self._base(here, line, offset), self.lanes, mask)

    def _transposed(self, line: Line, rows: list[Ref]) -> list[Ref]:
        """The columns of a tile, each a vector of as many numbers as there are rows."""
        tile = self._tile(line)
        width = self.lanes // tile
        groups = []
        for start in range(0, len(rows), tile):
            group, step = rows[start : start + tile], 1
            while step < tile:
                # The upper right and the lower left quarters of squares change places.
                low = [
                    self._picked(width, step, tile, False),
                    self._picked(width, step, tile, True),
                ]
                after = list(group)
                for i in range(tile):
                    if not i & step:
                        a, b = group[i], group[i + step]
                        after[i], after[i + step] = (self._shuffled(a, b, order) for order in low)
                group, step = after, 2 * step
            groups.append(group)
        joined = groups[0]
        for group in groups[1:]:
            order = list(range(2 * self.lanes))
            joined = [self._shuffled(a, b, order) for a, b in zip(joined, group, strict=True)]
        return joined

    @staticmethod
    def _picked(width: int, step: int, tile: int, upper: bool) -> list[int]:
        chosen = []
        for i in range(tile):
            other = bool(i & step)
            number = (i | step if upper else i & ~step) + (tile if other else 0)
            chosen += [number * width + part for part in range(width)]
        return chosen

    def _shuffled(self, a: Ref, b: Ref, order: list[int]) -> Ref:
        numbers = ", ".join(f"i32 {i}" for i in order)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(order)} x i32> <{numbers}>"
        return self.code.let(text, a.type, len(order))

    def _put_columns(
        self, line: Line, here: Ref, lines: list[Any], rest: Ref, columns: Any
    ) -> None:
        """Write a tile of all lines. columns: for each number, that of the lanes' lines."""
        mask, tile = self._part_mask(line, rest), self._tile(line)
        for part, rows in enumerate(lines):
            values = [found[part] for found in columns]
            for start in range(0, self.lanes, tile):
                if line is Line.REAL:
                    square = [x.ref for x in values]
                else:
                    square = [self._quarter(self._together(x), start, tile) for x in values]
                for row, (offset, exists) in zip(
                    self._transposed(line, square), rows[start : start + tile], strict=True
                ):
                    kept = mask if self.whole else self.code.binary("and", mask, exists)
                    self._write_vector(row, self._base(here, line, offset), kept)

    def _quarter(self, both: Ref, start: int, tile: int) -> Ref:
        """The complex numbers of `tile` lanes from `start` on."""
        return self._shuffled(both, both, list(range(2 * start, 2 * (start + tile))))

    def _put_halves(self, k: Ref, x: Pair, y: Pair) -> None:
        """Z = X + i Y for the transforms of two real lines, whose second halves are conjugates of
        the first ones. The parts are exchanged, since the transform is an inverse one. A number
        behind the half goes behind the buffer."""
        code, size = self.code, self.of["size"]
        mirror = code.binary("sub", self.of["length"], k)
        first = code.compare("icmp eq", k, self._int(0))
        real = Expr(code, code.binary("or", first, code.compare("icmp eq", k, mirror)))
        behind = code.compare("icmp sgt", k, mirror)
        (a, b), (c, d) = x, y
        b, d = where(real, 0.0, b), where(real, 0.0, d)
        mirror = code.select(behind, size, code.select(first, k, mirror))
        self._enter((c - b, a + d), mirror)
        self._enter((b + c, a - d), code.select(behind, size, k))

    def _write(self, source: Ref, outer: Ref) -> None:
        code, form = self.code, self.form
        base = self._base(Ref("%out", "ptr"), form.writes, outer)
        lines = self._lines(form.writes, form.writes_way, self.of["write_line"])
        factor = Expr(code, code.spread(self.factor, self.lanes))
        for loop, places in self._walk(form.writes, form.writes_way):
            here = self._base(base, form.writes, self._mul(loop.variable, self.of["write_step"]))
            columns = [self._column(source, place, factor) for place in places]
            self._fetch(base, form.writes, form.writes_way, loop.variable, "write", True)
            if form.writes_way is Way.ROWS:
                rest = code.binary("sub", loop.stop, loop.variable)
                self._put_columns(form.writes, here, lines, rest, columns)
            elif form.writes_way is Way.BESIDE:
                value = columns[0] if form.writes is Line.REAL else columns[0][0]
                self._put_masked(value, self._beside(here, form.writes), self.mask)
            elif form.writes is Line.REAL:
                for part, line in zip(columns[0], lines, strict=True):
                    self._scatter(part.ref, here, *line)
            else:
                for value, line in zip(columns[0], lines, strict=True):
                    self._put_complex(value, here, *line)

    def _column(self, source: Ref, place: Ref, factor: Expr) -> Any:
        """What the lines write of one number: complex numbers, or the parts of real ones."""
        form = self.form
        a, b = self._result(source, place, factor)
        if form.writes is Line.HALF:
            return self._halves(source, place, (a, b), factor)
        if form.turned:
            turns = self._base(
                Ref("%turns", "ptr"), form.writes, self._mul(place, self.of["lines"])
            )
            found = self._masked(self._beside(turns, Line.COMPLEX), self.mask)
            a, b = times((a, b), found)
        a, b = self._exchanged((a, b))
        return (a, b) if form.writes is Line.REAL else ((a, b),)

    def _halves(self, source: Ref, k: Ref, value: Pair, factor: Expr) -> tuple[Pair, Pair]:
        """The transforms X and Y of two real lines, from that of the first plus i times the
        second."""
        code = self.code
        mirror = code.binary("sub", self.of["length"], k)
        first = code.compare("icmp eq", k, self._int(0))
        behind = code.compare("icmp sgt", k, mirror)
        mirror = code.select(code.binary("or", first, behind), self._int(0), mirror)
        c, d = self._result(source, mirror, factor)
        a, b = value
        return ((a + c) * 0.5, (b - d) * 0.5), ((b + d) * 0.5, (c - a) * 0.5)
