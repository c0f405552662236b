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
from typing import Any

from .butterflies import RADICES, Pair, define_pass, load, store, times
from .code import Code, Loop, module_text
from .lines import Form, Line, Lines, Way
from .machine import Machine
from .math.expression import Expr, where
from .types import Ref, constant

BUFFERS = ("in", "out", "work", "passes", "turns")
"""The buffers of a kernel: input, output, memory to work in, the tables of the passes and of the
turns."""
NUMBERS = (
    "factor size length blocks lines read_outer read_line read_step write_outer write_line "
    "write_step inverse"
).split()
"""The int64 words of a kernel behind its buffers, before the counts of passes of each radix.
factor: of the results, the bits of a double. size: of the passes. length: of the transform, the
same unless that is a convolution. blocks: those of each outer place, for its `lines`. Strides count
elements, real or complex as they are in memory."""


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
        radices = [f"passes of {radix}" for radix in RADICES]
        self.of = code.words([*BUFFERS, *NUMBERS, *radices], len(BUFFERS))
        self.counts = [self.of[name] for name in radices]
        self.inverse = code.compare("icmp ne", self.of["inverse"], self._int(0))
        factor = code.convert("bitcast", self.of["factor"], "double")
        self.factor = factor if form.kind == "double" else code.convert("fptrunc", factor, "float")
        self.whole = False
        # The second buffer begins behind the first one and what its last tile has too much.
        behind = self._add(self.of["size"], self._int(lanes))
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
        a, b = value
        inverse = Expr(self.code, self.inverse)
        return where(inverse, b, a), where(inverse, a, b)

    # A block of lines.

    def _block(self, block: Ref) -> None:
        code, form = self.code, self.form
        outer = code.binary("sdiv", block, self.of["blocks"])
        block = code.binary("sub", block, self._mul(outer, self.of["blocks"]))
        lines = self.lanes * (2 if form.pairs else 1)
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
        left, step, table = self.of["size"], self._int(1), self.of["passes"]
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

    def _result(self, source: Ref, place: Ref, factor: Expr) -> Pair:
        a, b = self._load(source, place)
        if self.form.convolves:
            a, b = times((b, a), self._factor(place))
        return a * factor, b * factor

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
                self.of["turns"], form.writes, self._mul(place, self.of["lines"])
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
