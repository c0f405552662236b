"""Chains of elementwise kernels, run tile by tile: LLVM IR for any chain and any size.

What one kernel writes, the next one reads from the nearest cache, and only results go to memory. A
chunk has its own copy of the argument words of all kernels, and its own registers, each of which
holds a tile. They are on its stack.

Tables tell what a chain is:

    template      the argument words of all kernels
    registers     (word, place of the register in bytes)
    moving        (word, number of the array, bytes of an element)
    sizes         words that hold the number of elements of the tile
    starts        words that hold the first element of the tile
    calls         (function, its first word)
"""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, Loop, module_text
from .types import Ref, integer

TABLES = ("template", "registers", "moving", "sizes", "starts", "calls")
WORDS = (*TABLES, *[f"{name}.n" for name in TABLES], "tile", "bytes", "size", "each")
"""The argument words, before those of the arrays. Each table has a number of rows. tile: the
elements of a tile. bytes: those of the words and registers. size: the elements of an array. each:
those of a chunk."""

WIDTHS = {"registers": 2, "moving": 3, "calls": 2}
"""The columns of tables that have several."""


def text() -> str:
    """The module with a function `kernel`."""
    return module_text([_Writer().code])


class _Writer:
    def __init__(self) -> None:
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = {name: self._word(i, name in TABLES) for i, name in enumerate(WORDS)}
        self.block = code.let(f"alloca i8, {self.words['bytes'].typed}, align 64", "ptr")
        code.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        size = code.binary("mul", self.words["template.n"], integer(8))
        code.add(
            f"call void @llvm.memcpy.p0.p0.i64({self.block.typed}, "
            f"{self.words['template'].typed}, {size.typed}, i1 false)"
        )
        loop, (word, place) = self._rows("registers")
        self._put(word, code.let(f"getelementptr i8, {self.block.typed}, {place.typed}", "ptr"))
        code.close_loop(loop)
        first = code.binary("mul", Ref("%chunk", "i64"), self.words["each"])
        end = code.intrinsic(
            "smin", [code.binary("add", first, self.words["each"]), self.words["size"]]
        )
        tiles = code.open_loop(first, end, self.words["tile"])
        self._tile(tiles.variable, end)
        code.close_loop(tiles)

    def _tile(self, start: Ref, end: Ref) -> None:
        code = self.code
        count = code.intrinsic("smin", [code.binary("sub", end, start), self.words["tile"]])
        for name, value in (("sizes", count), ("starts", start)):
            loop, (word,) = self._rows(name)
            self._put(word, value)
            code.close_loop(loop)
        loop, (word, array, step) = self._rows("moving")
        base = self._load(
            Ref("%words", "ptr"), code.binary("add", array, integer(len(WORDS))), "ptr"
        )
        moved = code.binary("mul", start, step)
        self._put(word, code.let(f"getelementptr i8, {base.typed}, {moved.typed}", "ptr"))
        code.close_loop(loop)
        loop, (function, word) = self._rows("calls")
        called = code.convert("inttoptr", function, "ptr")
        at = code.let(f"getelementptr i64, {self.block.typed}, {word.typed}", "ptr")
        code.add(f"call void {called.text}({at.typed}, i64 0)")
        code.close_loop(loop)

    def _word(self, place: int, is_table: bool) -> Ref:
        return self._load(Ref("%words", "ptr"), integer(place), "ptr" if is_table else "i64")

    def _load(self, base: Ref, place: Ref, kind: str) -> Ref:
        at = self.code.let(f"getelementptr i64, {base.typed}, {place.typed}", "ptr")
        return self.code.let(f"load {kind}, {at.typed}, align 8", kind)

    def _rows(self, name: str) -> tuple[Loop, Sequence[Ref]]:
        """Opens a loop over the rows of a table: (loop, the row)."""
        width = WIDTHS.get(name, 1)
        loop = self.code.open_loop(integer(0), self.words[f"{name}.n"])
        first = self.code.binary("mul", loop.variable, integer(width))
        places = [self.code.binary("add", first, integer(i)) for i in range(width)]
        return loop, [self._load(self.words[name], place, "i64") for place in places]

    def _put(self, word: Ref, value: Ref) -> None:
        at = self.code.let(f"getelementptr i64, {self.block.typed}, {word.typed}", "ptr")
        self.code.add(f"store {value.typed}, {at.typed}, align 8")
