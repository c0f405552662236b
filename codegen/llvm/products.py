"""A product of matrices: LLVM IR for any sizes.

    out[m, n] = a[m, k] @ b[k, n]

Elements of a row of `out` and `b` are neighbours, and their rows are so many elements apart. Rows
and columns of `a` are. There is code of its own for a `b` whose columns' elements are neighbours.

BLAS puts all of `b` in another order first, which takes as long as the product with some dozen
rows. Here a tile of its columns is copied, and stays in the nearer caches for all rows of `a`. Each
chunk makes some columns.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .types import Ref, computed, constant, integer, suffix, vector

BUFFERS = ("out", "a", "b")
NUMBERS = ("m", "n", "k", "out.row", "a.row", "a.column", "b.line", "each")
WORDS = (*BUFFERS, *NUMBERS)
"""The argument words. b.line: the distance of the rows of `b`, or of its columns. each: the columns
of a chunk."""

_VECTORS = 3
"""The registers of a row of a tile."""
_DEPTH = 256
"""The rows of `b` that are copied at once."""


def columns(dtype: DType, vector_bytes: int) -> int:
    """The columns of a tile, of which those of a chunk should be a multiple."""
    return _VECTORS * vector_bytes // dtype.itemsize


def text(dtype: DType, vector_bytes: int, by_columns: bool = False) -> str:
    """The module with a function `kernel`, for registers of so many bytes. by_columns: whether the
    elements of a column of `b` are neighbours, rather than those of a row."""
    writer = _Writer(dtype, vector_bytes, by_columns)
    codes = [writer.code]
    if by_columns:
        from .dot import packing  # with the compiler, which only the writer of a pack loads

        codes.append(packing.function(_PACK, dtype, writer.width, writer.lanes, along=True))
    return module_text(codes)


_PACK = "pack"


class _Writer:
    """height: the rows of a tile, whose sums fill three quarters of the registers."""

    def __init__(self, dtype: DType, vector_bytes: int, by_columns: bool):
        self.kind, self.itemsize = computed(dtype), dtype.itemsize
        self.lanes = vector_bytes // dtype.itemsize
        self.width = _VECTORS * self.lanes
        self.height = 8 if vector_bytes == 64 else 4
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = words = code.words(WORDS, len(BUFFERS))
        size = f"[{_DEPTH * self.width} x {self.kind}]"
        self.tile = code.let(f"alloca {size}, align 64", "ptr")
        first = code.binary("mul", Ref("%chunk", "i64"), words["each"])
        end = code.intrinsic("smin", [code.binary("add", first, words["each"]), words["n"]])
        strips = code.open_loop(first, end, self.width)
        self.first, left = strips.variable, code.binary("sub", end, strips.variable)
        self.masks = [
            self._mask(code.binary("sub", left, integer(i * self.lanes))) for i in range(_VECTORS)
        ]
        depths = code.open_loop(integer(0), words["k"], _DEPTH)
        begin = depths.variable
        depth = code.intrinsic("smin", [code.binary("sub", words["k"], begin), integer(_DEPTH)])
        if by_columns:
            self._turn(begin, depth, left)
        else:
            self._copy(begin, depth)
        rows = code.open_loop(integer(0), words["m"], self.height)
        self._rows(rows.variable, begin, depth)
        for loop in (rows, depths, strips):
            code.close_loop(loop)

    def _mask(self, left: Ref) -> Ref:
        """Which lanes are among the next `left` columns."""
        numbers = ", ".join(f"i64 {i}" for i in range(self.lanes))
        return self.code.compare(
            "icmp slt", Ref(f"<{numbers}>", "i64", self.lanes), self.code.splat(left, self.lanes)
        )

    def _place(self, base: Ref, *terms: Ref) -> Ref:
        place = terms[0]
        for term in terms[1:]:
            place = self.code.binary("add", place, term)
        return self.code.let(f"getelementptr {self.kind}, {base.typed}, {place.typed}", "ptr")

    def _masked(self, at: Ref, mask: Ref) -> Ref:
        full, of = vector(self.kind, self.lanes), suffix(self.kind, self.lanes)
        symbol = f"@llvm.masked.load.{of}.p0"
        self.code.declare(f"declare {full} {symbol}(ptr, i32, <{self.lanes} x i1>, {full})")
        text = f"{at.typed}, i32 {self.itemsize}, {mask.typed}, {full} zeroinitializer"
        return self.code.let(f"call {full} {symbol}({text})", self.kind, self.lanes)

    def _copy(self, begin: Ref, depth: Ref) -> None:
        """Copy a part of some columns of `b`, with zeros where there are no more columns."""
        code, words = self.code, self.words
        loop = code.open_loop(integer(0), depth)
        row = code.binary("mul", code.binary("add", begin, loop.variable), words["b.line"])
        target = code.binary("mul", loop.variable, integer(self.width))
        for i, mask in enumerate(self.masks):
            column = code.binary("add", self.first, integer(i * self.lanes))
            value = self._masked(self._place(words["b"], row, column), mask)
            at = self._place(self.tile, target, integer(i * self.lanes))
            code.add(f"store {value.typed}, {at.typed}, align 64")
        code.close_loop(loop)

    def _turn(self, begin: Ref, depth: Ref, left: Ref) -> None:
        """Copy a part of some columns of `b`, the last one again where there are no more."""
        code, words = self.code, self.words
        start = self._place(words["b"], code.binary("mul", self.first, words["b.line"]), begin)
        count = code.intrinsic("smin", [left, integer(self.width)])
        given = (start, words["b.line"], count, depth, self.tile, integer(0))
        code.add(f"call void @{_PACK}({', '.join(r.typed for r in given)})")

    def _rows(self, first: Ref, begin: Ref, depth: Ref) -> None:
        """Add what some rows of `a` make of the copy. A row beyond the last one repeats it."""
        code, words = self.code, self.words
        last = code.binary("sub", words["m"], integer(1))
        numbers = [code.binary("add", first, integer(i)) for i in range(self.height)]
        rows = [code.intrinsic("smin", [number, last]) for number in numbers]
        column = code.binary("mul", begin, words["a.column"])
        sources = [
            self._place(words["a"], code.binary("mul", row, words["a.row"]), column) for row in rows
        ]
        zeros = [constant(0, self.kind, self.lanes)] * (self.height * _VECTORS)
        steps = code.open_loop(integer(0), depth, 1, zeros)
        held = [phi for phi, _ in steps.carried]
        at = self._place(self.tile, code.binary("mul", steps.variable, integer(self.width)))
        read = []
        for i in range(_VECTORS):
            place = self._place(at, integer(i * self.lanes))
            text = f"load {vector(self.kind, self.lanes)}, {place.typed}, align 64"
            read.append(code.let(text, self.kind, self.lanes))
        found = []
        column = code.binary("mul", steps.variable, words["a.column"])
        for i, source in enumerate(sources):
            place = self._place(source, column)
            factor = code.let(f"load {self.kind}, {place.typed}, align {self.itemsize}", self.kind)
            factor = code.splat(factor, self.lanes)
            for each, total in zip(read, held[i * _VECTORS :]):
                found.append(code.intrinsic("fma", [factor, each, total]))
        sums = code.close_loop(steps, found)
        is_first = code.compare("icmp eq", begin, integer(0))
        for i, (number, row) in enumerate(zip(numbers, rows)):
            exists = code.splat(code.compare("icmp sle", number, last), self.lanes)
            target = code.binary("mul", row, words["out.row"])
            for j, mask in enumerate(self.masks):
                column = code.binary("add", self.first, integer(j * self.lanes))
                place = self._place(words["out"], target, column)
                kept = code.binary("and", mask, exists)
                before = code.binary("and", kept, code.splat(self._not(is_first), self.lanes))
                total = code.binary("fadd", self._masked(place, before), sums[i * _VECTORS + j])
                self._store(total, place, kept)

    def _not(self, a: Ref) -> Ref:
        return self.code.binary("xor", a, constant(True, "i1"))

    def _store(self, value: Ref, at: Ref, mask: Ref) -> None:
        symbol = f"@llvm.masked.store.{suffix(self.kind, self.lanes)}.p0"
        self.code.declare(
            f"declare void {symbol}({value.full_type}, ptr, i32, <{self.lanes} x i1>)"
        )
        text = f"{value.typed}, {at.typed}, i32 {self.itemsize}, {mask.typed}"
        self.code.add(f"call void {symbol}({text})")
