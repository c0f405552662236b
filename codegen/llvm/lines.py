"""The lines of a Fourier transform in memory: how a block of them is read into lanes, and written.

Each lane has a line of its own. Rows are read in tiles, which are turned in registers; lines that
lie side by side need no shuffle, and others are gathered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

from .butterflies import Pair, apart, together
from .code import Code
from .machine import Machine
from .math.expression import Expr
from .types import Ref, constant, lane_numbers, suffix, vector


class Line(Enum):
    """How a line lies in memory."""

    COMPLEX = "complex"
    REAL = "real"
    PART = "part"  # the real parts of complex numbers, which are only read
    HALF = "half"  # the first half of the complex transform of a real line

    @property
    def is_real(self) -> bool:
        return self in (Line.REAL, Line.PART)

    @property
    def parts(self) -> int:
        """The numbers that an element is in memory."""
        return 1 if self is Line.REAL else 2


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
    inverse: bool = False
    convolves: bool = False

    @property
    def itemsize(self) -> int:
        return 4 if self.kind == "float" else 8

    def lanes(self, machine: Machine) -> int:
        return machine.vector_bytes // self.itemsize

    @property
    def wide(self) -> int:
        """The cells of the first buffer for each number: lines that the first pass reads may come
        to it as they are in memory."""
        return 2 if self.reads is Line.PART else 1

    @property
    def pairs(self) -> bool:
        """Whether a lane takes two real lines. Where it reads neighbours and writes complex lines,
        they are the parts of these."""
        return self.reads.is_real or self.writes.is_real

    @property
    def reads_directly(self) -> bool:
        """Whether the first pass reads memory itself."""
        return self.reads_way is Way.BESIDE and not self.convolves

    @property
    def writes_directly(self) -> bool:
        """Whether the last pass writes memory itself."""
        return self.writes_way is Way.BESIDE and not self.convolves

    def lines(self, machine: Machine) -> int:
        """The lines of a block."""
        return self.lanes(machine) * (2 if self.pairs else 1)


class Lines:
    """The lines of a block.

    of: the numbers of the kernel. first, rest: the first line, and how many there are from it on.
    whole: whether all of what is moved exists, so that it needs no mask.
    """

    code: Code
    form: Form
    lanes: int
    of: dict[str, Ref]
    first: Ref
    rest: Ref
    whole: bool

    def _int(self, value: int) -> Ref:
        return constant(value, "i64")

    def _add(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("add", a, b)

    def _mul(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("mul", a, b)

    def _element(self, kind: str, base: Ref, index: Ref) -> Ref:
        return self.code.let(f"getelementptr {kind}, {base.typed}, {index.typed}", "ptr")

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

    def _complex(self, base: Ref, offsets: Ref, exists: Ref) -> Pair:
        """Complex numbers of as many lines. A complex64 is read as one number of 64 bits."""
        code, lanes = self.code, self.lanes
        if self.form.kind == "float":
            words = self._gather("i64", base, offsets, exists)
            text = f"bitcast {words.typed} to <{2 * lanes} x float>"
            return apart(code, code.let(text, "float", 2 * lanes))
        offsets = code.binary("shl", offsets, self._int(1))
        second = self._element("double", base, self._int(1))
        return (
            Expr(code, self._gather("double", base, offsets, exists)),
            Expr(code, self._gather("double", second, offsets, exists)),
        )

    def _put_complex(self, value: Pair, base: Ref, offsets: Ref, exists: Ref) -> None:
        code, lanes = self.code, self.lanes
        if self.form.kind == "float":
            both = together(self.code, value)
            words = code.let(f"bitcast {both.typed} to <{lanes} x i64>", "i64", lanes)
            self._scatter(words, base, offsets, exists)
            return
        offsets = code.binary("shl", offsets, self._int(1))
        second = self._element("double", base, self._int(1))
        self._scatter(value[0].ref, base, offsets, exists)
        self._scatter(value[1].ref, second, offsets, exists)

    def _base(self, base: Ref, line: Line, offset: Ref) -> Ref:
        kind = self.form.kind if line.parts == 1 else f"[2 x {self.form.kind}]"
        return self._element(kind, base, offset)

    def _masked(self, at: Ref, mask: Ref) -> Pair:
        """Complex numbers that lie side by side."""
        return apart(self.code, self._read_vector(at, 2 * self.lanes, mask))

    def _put_masked(self, value: Pair, at: Ref, mask: Ref) -> None:
        self._write_vector(together(self.code, value), at, mask)

    def _beside(self, base: Ref, line: Line) -> Ref:
        """The address of this block's lines, which lie side by side."""
        lines = self.first
        if self.form.pairs and line is Line.COMPLEX:
            lines = self.code.binary("sdiv", lines, self._int(2))
        return self._base(base, line, lines)

    def _lines(self, line: Line, way: Way, stride: Ref) -> list[Any]:
        """What is known of the lines of a block before its loop."""
        if way is Way.BESIDE:
            return []
        pairs = self.form.pairs
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
        return self.lanes if line.is_real else self.lanes // 2

    def _part_mask(self, line: Line, rest: Ref) -> Ref:
        """Which parts of a vector of a line exist."""
        lanes = self._tile(line) * line.parts
        return self._mask(lanes, self._mul(rest, self._int(line.parts)))

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
        size = self.form.itemsize * line.parts
        cells = self._base(base, line, at)
        for byte in range(0, taken * size, 64):
            code.prefetch(code.let(f"getelementptr i8, {cells.typed}, i64 {byte}", "ptr"), to_write)

    def _columns(self, line: Line, here: Ref, lines: list[Any], rest: Ref) -> list[list[Pair]]:
        """For each number of a tile, what the lanes read of it: a complex number, or two."""
        mask = self._part_mask(line, rest)
        turned = [self._transposed(line, [
            self._row(line, here, offset, mask) for offset, _ in rows
        ]) for rows in lines]  # fmt: skip
        if line.is_real:
            return [
                [(Expr(self.code, a), Expr(self.code, b))] for a, b in zip(*turned, strict=True)
            ]
        return [[apart(self.code, x) for x in found] for found in zip(*turned, strict=True)]

    def _row(self, line: Line, here: Ref, offset: Ref, mask: Ref) -> Ref:
        found = self._read_vector(self._base(here, line, offset), mask.lanes, mask)
        return self.code.moved(found, range(0, mask.lanes, 2)) if line is Line.PART else found

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
                    square = [self._quarter(together(self.code, x), start, tile) for x in values]
                for row, (offset, exists) in zip(
                    self._transposed(line, square), rows[start : start + tile], strict=True
                ):
                    kept = mask if self.whole else self.code.binary("and", mask, exists)
                    self._write_vector(row, self._base(here, line, offset), kept)

    def _quarter(self, both: Ref, start: int, tile: int) -> Ref:
        """The complex numbers of `tile` lanes from `start` on."""
        return self._shuffled(both, both, list(range(2 * start, 2 * (start + tile))))
