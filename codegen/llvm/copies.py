"""A tensor in row-major order, from any strides: LLVM IR for any sizes.

    out[i, j] = x[i * row + j * column], for each of several planes

Strides count elements and may be negative. Rows that go backwards are turned in vectors, and where
columns lie in memory as rows, square blocks are turned in registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, module_text
from .types import Ref, constant, integer, vector

OUTER = 4
"""Dimensions of planes."""
WORDS = (
    "out", "x", "rows", "columns", "row", "column",
    *[f"{name}{d}" for name in ("size", "stride") for d in range(OUTER)],
)  # fmt: skip
"""The argument words."""

_LANES, _STRIP = 8, 16
"""The side of a block, and the rows that are written together, so that a line of the cache that is
read holds elements of all of them."""


def text(itemsize: int) -> str:
    """The module with a function `kernel`."""
    return module_text([_Writer(itemsize).code])


class _Writer:
    def __init__(self, itemsize: int):
        self.kind, self.itemsize = f"i{8 * itemsize}", itemsize
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        words = code.words(WORDS, 2)
        self.rows, self.columns = words["rows"], words["columns"]
        self.row, self.column = words["row"], words["column"]
        plane, at, loops = integer(0), integer(0), []
        for d in range(OUTER):
            loop = code.open_loop(integer(0), words[f"size{d}"])
            loops.append(loop)
            plane = self._sum(self._product(plane, words[f"size{d}"]), loop.variable)
            at = self._sum(at, self._product(loop.variable, words[f"stride{d}"]))
        size = self._product(self.rows, self.columns)
        self.out = self._at(words["out"], self._product(plane, size))
        self.x = self._at(words["x"], at)
        back = self._is(self.column, -1)
        up, down = self._is(self.row, 1), self._is(self.row, -1)
        turned = code.binary("and", code.binary("or", up, down), self._not(back))
        plain = self._not(code.binary("or", back, turned))
        self._backwards(code.select(back, self.rows, integer(0)))
        for which, first in ((up, 0), (down, 1 - _LANES)):
            self._turned(code.binary("and", turned, which), first)
        # Beside whole blocks, and all of another plane: one by one.
        whole = [code.binary("and", n, integer(-_LANES)) for n in (self.rows, self.columns)]
        done = [code.select(turned, n, integer(0)) for n in whole]
        self._one_by_one(
            integer(0), done[0], done[1], code.select(turned, self.columns, integer(0))
        )
        rest = code.select(code.binary("or", turned, plain), self.rows, integer(0))
        self._one_by_one(done[0], rest, integer(0), self.columns)
        for loop in reversed(loops):
            code.close_loop(loop)

    def _backwards(self, rows: Ref) -> None:
        """Rows whose elements lie in the opposite order."""
        code, lanes = self.code, 64 // self.itemsize
        loop = code.open_loop(integer(0), rows)
        whole = code.binary("and", self.columns, integer(-lanes))
        columns = code.open_loop(integer(0), whole, lanes)
        first = self._place(loop.variable, self._sum(columns.variable, integer(lanes - 1)))
        value = self._load(first, lanes)
        self._store(loop.variable, columns.variable, code.moved(value, range(lanes - 1, -1, -1)))
        code.close_loop(columns)
        self._row(loop.variable, whole, self.columns)
        code.close_loop(loop)

    def _turned(self, fits: Ref, first: int) -> None:
        """Whole blocks of a plane whose columns lie in memory as rows. first: the element of a
        column, beside its first one in the block, that lies before all others."""
        code, lanes = self.code, _LANES
        rows, columns = (
            code.select(fits, code.binary("and", n, integer(-lanes)), integer(0))
            for n in (self.rows, self.columns)
        )
        strips = code.open_loop(integer(0), rows, _STRIP)
        stop = code.intrinsic("smin", [self._sum(strips.variable, integer(_STRIP)), rows])
        across = code.open_loop(integer(0), columns, lanes)
        down = code.open_loop(strips.variable, stop, lanes)
        block = []
        for j in range(lanes):
            place = self._place(down.variable, self._sum(across.variable, integer(j)))
            value = self._load(self._sum(place, integer(first)), lanes)
            block.append(self._reversed(value) if first else value)
        for i, value in enumerate(self._transposed(block)):
            self._store(self._sum(down.variable, integer(i)), across.variable, value)
        for loop in (down, across, strips):
            code.close_loop(loop)

    def _transposed(self, block: Sequence[Ref]) -> list[Ref]:
        """Exchange halves, then quarters, and so on, of pairs of vectors."""
        found, lanes, apart = list(block), len(block), len(block) // 2
        while apart:
            for i in range(lanes):
                if not i & apart:
                    a, b = found[i], found[i + apart]
                    low = [k if not k & apart else lanes + k - apart for k in range(lanes)]
                    high = [k + apart if not k & apart else lanes + k for k in range(lanes)]
                    found[i], found[i + apart] = (self._shuffled(a, b, m) for m in (low, high))
            apart //= 2
        return found

    def _reversed(self, x: Ref) -> Ref:
        return self._shuffled(x, x, range(x.lanes - 1, -1, -1))

    def _shuffled(self, a: Ref, b: Ref, order: Sequence[int]) -> Ref:
        mask = ", ".join(f"i32 {k}" for k in order)
        text = f"shufflevector {a.typed}, {b.typed}, <{a.lanes} x i32> <{mask}>"
        return self.code.let(text, self.kind, a.lanes)

    def _one_by_one(self, first: Ref, stop: Ref, start: Ref, end: Ref) -> None:
        loop = self.code.open_loop(first, stop)
        self._row(loop.variable, start, end)
        self.code.close_loop(loop)

    def _row(self, row: Ref, start: Ref, end: Ref) -> None:
        loop = self.code.open_loop(start, end)
        self._store(row, loop.variable, self._load(self._place(row, loop.variable), 1))
        self.code.close_loop(loop)

    def _place(self, row: Ref, column: Ref) -> Ref:
        return self._sum(self._product(row, self.row), self._product(column, self.column))

    def _load(self, place: Ref, lanes: int) -> Ref:
        at = self._at(self.x, place)
        text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.itemsize}"
        return self.code.let(text, self.kind, lanes)

    def _store(self, row: Ref, column: Ref, value: Ref) -> None:
        at = self._at(self.out, self._sum(self._product(row, self.columns), column))
        self.code.add(f"store {value.typed}, {at.typed}, align {self.itemsize}")

    def _at(self, base: Ref, place: Ref) -> Ref:
        return self.code.let(f"getelementptr {self.kind}, {base.typed}, {place.typed}", "ptr")

    def _sum(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("add", a, b)

    def _product(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("mul", a, b)

    def _is(self, a: Ref, value: int) -> Ref:
        return self.code.compare("icmp eq", a, integer(value))

    def _not(self, a: Ref) -> Ref:
        return self.code.binary("xor", a, constant(True, "i1"))
