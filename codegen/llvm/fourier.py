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

import math
from collections.abc import Iterator, Sequence
from typing import Any

from .butterflies import Cells, Pair, Pass, load, store, times
from .code import Code, Loop, module_text
from .lines import Form, Line, Lines, Way
from .machine import Machine
from .math.expression import Expr, where
from .types import Ref, constant, vector

BUFFERS = ("in", "out", "work", "passes", "turns")
"""The buffers of a kernel: input, output, memory to work in, the tables of the passes and of the
turns."""
NUMBERS = (
    "factor size length blocks lines read_outer read_line read_step read_ahead write_outer "
    "write_line write_step write_ahead count"
).split()
"""The int64 words of a kernel behind its buffers. factor: of the
results, the bits of a double. size: of the passes. length: of the transform, the same unless that
is a convolution. blocks: those of each outer place, for its `lines`. Strides count elements, real
or complex as they are in memory; ahead: those to what is fetched beside each number of lines that
lie side by side. count: of the passes. Of each of these follow the address, m, s, and where its
table begins."""


def passes_of(form: Form, radices: Sequence[int]) -> list[tuple[Pass, int, int, int]]:
    """The passes in their order, the m and s of each, and where its table begins."""
    found = []
    left, step, table = math.prod(radices), 1, 0
    for i, radix in enumerate(radices):
        is_last, left = i == len(radices) - 1, left // radix
        reads = Cells(i == 0 and form.reads_directly, form.reads is Line.PART, form.inverse)
        writes = Cells(
            is_last and form.writes_directly, False, form.inverse, is_last and form.turned
        )
        found.append((Pass(radix, reads, writes, is_last), left, step, table))
        step, table = step * radix, table + 2 * left * (radix - 1)
    return found


def emit(form: Form, machine: Machine) -> str:
    """The module, whose function `kernel` takes a pointer to its words, and the first block to
    compute and the one behind the last."""
    return module_text([_Kernel(form, form.lanes(machine)).code]) + machine.attributes


def emit_series(machine: Machine) -> str:
    """The module, whose function `kernel` runs kernels one after another in each outer place. It
    takes a table of (address, words, blocks of an outer place), the number of kernels, the first
    place and the one behind the last."""
    code = Code("kernel", "ptr %table, i64 %count, i64 %first, i64 %last")
    places = code.open_loop(Ref("%first", "i64"), Ref("%last", "i64"))
    kernels = code.open_loop(constant(0, "i64"), Ref("%count", "i64"))
    entry = code.let(f"getelementptr [3 x i64], ptr %table, {kernels.variable.typed}", "ptr")
    address, words, blocks = (
        code.let(f"load {kind}, {at.typed}, align 8", kind)
        for place, kind in enumerate(("ptr", "ptr", "i64"))
        for at in [code.let(f"getelementptr i64, {entry.typed}, i64 {place}", "ptr")]
    )
    start = code.binary("mul", places.variable, blocks)
    stop = code.binary("add", start, blocks)
    code.add(f"call void {address.text}({words.typed}, {start.typed}, {stop.typed})")
    code.close_loop(kernels)
    code.close_loop(places)
    return module_text([code]) + machine.attributes


class _Kernel(Lines):
    def __init__(self, form: Form, lanes: int):
        self.form, self.lanes = form, lanes
        self.code = code = Code("kernel", "ptr %words, i64 %first, i64 %last")
        self.of = code.words([*BUFFERS, *NUMBERS], len(BUFFERS))
        factor = code.convert("bitcast", self.of["factor"], "double")
        self.factor = factor if form.kind == "double" else code.convert("fptrunc", factor, "float")
        self.whole = False
        # The second buffer begins behind the first one and what its last tile has too much.
        behind = self._mul(self._add(self.of["size"], self._int(lanes)), self._int(form.wide))
        self.buffer = self.of["work"], self._at(self.of["work"], behind)
        loop = code.open_loop(Ref("%first", "i64"), Ref("%last", "i64"))
        self._block(loop.variable)
        code.close_loop(loop)

    # Places of the buffers.

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
        return (value[1], value[0]) if self.form.inverse else value

    # A block of lines.

    def _block(self, block: Ref) -> None:
        code, form = self.code, self.form
        outer = code.binary("sdiv", block, self.of["blocks"])
        block = code.binary("sub", block, self._mul(outer, self.of["blocks"]))
        lines = self.lanes * (2 if form.pairs else 1)
        self.block = block
        self.first = self._mul(block, self._int(lines))
        self.rest = code.binary("sub", self.of["lines"], self.first)
        self.is_full = code.compare("icmp sge", self.rest, self._int(lines))
        parts = self.rest if lines > self.lanes else self._mul(self.rest, self._int(2))
        self.mask = self._mask(2 * self.lanes, parts)
        read, write = (self._mul(outer, self.of[f"{name}_outer"]) for name in ("read", "write"))
        source, step = self.buffer[0], self._int(0)
        if form.reads_directly:
            source, step = self._source(read)
        else:
            self._read(read)
        if form.convolves:
            self._clear(source)
            one = constant(1, form.kind)
            found, other = self._passes(source, *self.buffer[::-1], one)
            self._filter(found)
            found, _ = self._passes(found, other, found, self.factor)
        elif form.writes_directly:
            base = self._beside(self._base(self.of["out"], form.writes, write), form.writes)
            found, _ = self._passes(source, *self.buffer[::-1], self.factor, step, base)
            self._put_rest(found, base)
            return
        else:
            found, _ = self._passes(source, *self.buffer[::-1], self.factor, step)
        self._write(found, write)

    # The passes.

    def _passes(
        self,
        source: Ref,
        target: Ref,
        spare: Ref,
        factor: Ref,
        read: Ref | None = None,
        out: Ref | None = None,
    ) -> tuple[Ref, Ref]:
        """All passes, from `source` to `target` and then to `spare` in turns; the buffer that has
        the result, and the other one. read: the bytes from a number to the next one where the first
        pass reads lines that lie side by side. out: where the last one writes such lines if the
        block is full."""
        code, none = self.code, self._int(0)
        last = code.binary("sub", self.of["count"], self._int(1))
        write = self._bytes("write", "step")
        cell = self._int(2 * self.lanes * self.form.itemsize)
        write = code.select(self.is_full, write, cell)
        ahead = [
            code.select(self.is_full, self._bytes(name, "ahead"), none)
            for name in ("read", "write")
        ]
        turns = none
        if self.form.turned:
            turns = self._at(self.of["turns"], self.block)
        loop = code.open_loop(none, self.of["count"], 1, (source, target, spare))
        source, target, spare = (phi for phi, _ in loop.carried)
        start = len(BUFFERS) + len(NUMBERS)
        place = self._add(self._mul(loop.variable, self._int(4)), self._int(start))
        words = []
        for i in range(4):
            at = self._element("i64", Ref("%words", "ptr"), self._add(place, self._int(i)))
            words.append(code.let(f"load i64, {at.typed}, align 8", "i64"))
        address, m, s, table = words
        function = code.convert("inttoptr", address, "ptr")
        written = target
        if out is not None:
            ends = code.compare("icmp eq", loop.variable, last)
            written = code.select(code.binary("and", ends, self.is_full), out, target)
        weights = self._element(self.form.kind, self.of["passes"], table)
        args = [source, written, m, s, weights, read or none, write, *ahead]
        args += [turns if self.form.turned else Ref("null", "ptr"), self.of["blocks"], factor]
        code.add(f"call void {function.text}({', '.join(a.typed for a in args)})")
        found, other, _ = code.close_loop(loop, (target, spare, target))
        return found, other

    # Lines side by side, which the first pass reads and the last one writes, unless the block isn't
    # full: then they go through a buffer, where nothing is masked.

    def _bytes(self, name: str, what: str) -> Ref:
        line = self.form.reads if name == "read" else self.form.writes
        size = self.form.itemsize * line.parts
        return self._mul(self.of[f"{name}_{what}"], self._int(size))

    def _rest(self) -> Loop:
        """A loop over the numbers of lines of a block that isn't full."""
        count = self.code.select(self.is_full, self._int(0), self.of["length"])
        return self.code.open_loop(self._int(0), count)

    def _source(self, outer: Ref) -> tuple[Ref, Ref]:
        """What the first pass reads, and the bytes between its numbers."""
        code, form = self.code, self.form
        lanes, mask = 2 * self.lanes, self.mask
        if form.reads is Line.PART:
            lanes, mask = 2 * lanes, self._mask(2 * lanes, self._mul(self.rest, self._int(2)))
        base = self._beside(self._base(self.of["in"], form.reads, outer), form.reads)
        loop = self._rest()
        at = self._base(base, form.reads, self._mul(loop.variable, self.of["read_step"]))
        found = self._read_vector(at, lanes, mask)
        cell = self._element(f"[{lanes} x {form.kind}]", self.buffer[0], loop.variable)
        code.add(f"store {found.typed}, {cell.typed}, align {form.itemsize}")
        code.close_loop(loop)
        step = self._int(lanes * form.itemsize)
        step = code.select(self.is_full, self._bytes("read", "step"), step)
        return code.select(self.is_full, base, self.buffer[0]), step

    def _put_rest(self, found: Ref, base: Ref) -> None:
        code, form, lanes = self.code, self.form, 2 * self.lanes
        loop = self._rest()
        cell = self._at(found, loop.variable)
        text = f"load {vector(form.kind, lanes)}, {cell.typed}, align {form.itemsize}"
        at = self._base(base, form.writes, self._mul(loop.variable, self.of["write_step"]))
        self._write_vector(code.let(text, form.kind, lanes), at, self.mask)
        code.close_loop(loop)

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
        at = self._base(self.of["turns"], Line.COMPLEX, place)
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

    def _result(self, source: Ref, place: Ref) -> Pair:
        a, b = self._load(source, place)
        return times((b, a), self._factor(place)) if self.form.convolves else (a, b)

    # From and to memory.

    def _read(self, outer: Ref) -> None:
        code, form = self.code, self.form
        base = self._base(self.of["in"], form.reads, outer)
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
        base = self._base(self.of["out"], form.writes, outer)
        lines = self._lines(form.writes, form.writes_way, self.of["write_line"])
        for loop, places in self._walk(form.writes, form.writes_way):
            here = self._base(base, form.writes, self._mul(loop.variable, self.of["write_step"]))
            columns = [self._column(source, place) for place in places]
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

    def _column(self, source: Ref, place: Ref) -> Any:
        """What the lines write of one number: complex numbers, or the parts of real ones."""
        form = self.form
        a, b = self._result(source, place)
        if form.writes is Line.HALF:
            return self._halves(source, place, (a, b))
        a, b = self._exchanged((a, b))
        return (a, b) if form.writes is Line.REAL else ((a, b),)

    def _halves(self, source: Ref, k: Ref, value: Pair) -> tuple[Pair, Pair]:
        """The transforms X and Y of two real lines, from that of the first plus i times the
        second."""
        code = self.code
        mirror = code.binary("sub", self.of["length"], k)
        first = code.compare("icmp eq", k, self._int(0))
        behind = code.compare("icmp sgt", k, mirror)
        mirror = code.select(code.binary("or", first, behind), self._int(0), mirror)
        c, d = self._result(source, mirror)
        a, b = value
        return ((a + c) * 0.5, (b - d) * 0.5), ((b + d) * 0.5, (c - a) * 0.5)
