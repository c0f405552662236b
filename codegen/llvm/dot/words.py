"""Products of bytes, int8 and uint8, summed in int32, and of bfloat16, summed in float32.

A *word* of 32 bits holds neighbours along K: four bytes, of which one instruction adds all products
to a sum (`vpdpbusd`), or two of 16 bits where a processor has no such instruction (`vpmaddwd`).
Either is exact. Of two bfloat16 an instruction adds the products, too (`vdpbf16ps`), where a
processor has it; it takes subnormal numbers for zeros. So a panel is one of words, with a fourth or
a half of the places along K, and everything but packing and the multiplication itself is as for
float32.

`vpdpbusd` multiplies an unsigned byte by a signed one. If both are signed, `a` is packed with 128
added to each byte, and each sum is 128 times the sum of the column of `b` too large. The tile gets
one more row, of bytes that are 128, whose sums are that difference.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import DType, bfloat16, int8, int32, uint8

from ...kernel import Dot, Load, Value
from ..code import Code
from ..machine import Machine
from ..types import Ref, computed, constant, vector
from .squares import head, store, transposed

BYTES = (int8, uint8)
SIDE = 16
"""Rows, columns, and words of K of a matrix register."""
SHIFT = 0x80808080 - (1 << 32)
"""128 in each byte of a word."""
ZERO, ONE = constant(0, "i64"), constant(1, "i64")


@dataclass(frozen=True)
class Words:
    """places: the places along K in a word. shifts: whether 128 is added to each byte of `a`.
    swaps: whether `b` is the unsigned operand. halves: whether the places are bfloat16. squares:
    the instruction that multiplies matrix registers (see `matrix.py`), if one does."""

    places: int
    shifts: bool = False
    swaps: bool = False
    halves: bool = False
    squares: str = ""

    @property
    def step(self) -> int:
        """The words of K that are multiplied together; K is filled up with zeros to whole steps."""
        return SIDE if self.squares else 1

    @property
    def offset(self) -> Ref:
        return constant(SHIFT, "i32")

    def add(self, code: Code, a: Ref, b: Ref, total: Ref) -> Ref:
        """`total` plus the products of the words of two vectors."""
        lanes = total.lanes
        if self.halves:
            symbol, kind = "@llvm.x86.avx512bf16.dpbf16ps.512", vector("float", lanes)
            pairs = vector("i32", lanes)
            code.declare(f"declare {kind} {symbol}({kind}, {pairs}, {pairs})")
            a, b = (code.let(f"bitcast {x.typed} to {pairs}", "i32", lanes) for x in (a, b))
            text = f"call {kind} {symbol}({total.typed}, {a.typed}, {b.typed})"
            return code.let(text, "float", lanes)
        if self.places == 4:
            first, second = (b, a) if self.swaps else (a, b)
            symbol = f"@llvm.x86.avx512.vpdpbusd.{lanes * 32}"
            kind = vector("i32", lanes)
            code.declare(f"declare {kind} {symbol}({kind}, {kind}, {kind})")
            text = f"call {kind} {symbol}({total.typed}, {first.typed}, {second.typed})"
            return code.let(text, "i32", lanes)
        symbol = "@llvm.x86.avx2.pmadd.wd" if lanes == 8 else "@llvm.x86.avx512.pmaddw.d.512"
        half = vector("i16", 2 * lanes)
        code.declare(f"declare {vector('i32', lanes)} {symbol}({half}, {half})")
        a, b = (code.let(f"bitcast {x.typed} to {half}", "i16", 2 * lanes) for x in (a, b))
        products = code.let(
            f"call {vector('i32', lanes)} {symbol}({a.typed}, {b.typed})", "i32", lanes
        )
        return code.binary("add", products, total)


def words_for(machine: Machine, dot: Dot, a: Value, b: Value) -> Words | None:
    """How a machine multiplies the operands of `dot`, in this order; None if it has no instruction
    for their types."""
    if _is_half(a) and _is_half(b) and computed(dot.dtype) == "float":
        if dot.segment:
            return None
        if machine.multiplies_squares:
            return Words(2, halves=True, squares="tdpbf16ps")
        return Words(2, halves=True) if machine.multiplies_halves else None
    if a.dtype not in BYTES or b.dtype not in BYTES or dot.dtype is not int32:
        return None
    if not machine.multiplies_words:
        return None
    if machine.multiplies_squares and not dot.segment:
        signs = ["s" if x.dtype is int8 else "u" for x in (a, b)]
        return Words(4, squares=f"tdpb{signs[0]}{signs[1]}d")
    if machine.multiplies_bytes and int8 in (a.dtype, b.dtype):
        return Words(4, shifts=a.dtype is b.dtype, swaps=b.dtype is uint8)
    return Words(2)


def _is_half(value: Value) -> bool:
    return isinstance(value, Load) and value.buffer.dtype is bfloat16


def function(
    name: str, dtype: DType, width: int, lanes: int, words: Words, shifts: bool, along: bool
) -> Code:
    """Packs rows * depth elements at `from`, where rows (along) or places of K are `stride` apart:

    void name(ptr from, i64 stride, i64 rows, i64 depth, ptr to, i64 panel)

    panel: the distance of panels, in words. Words are filled up with zeros where K ends, and rows
    beyond the last one repeat it.
    """
    parameters = "ptr noalias %from, i64 %stride, i64 %rows, i64 %depth, ptr noalias %to"
    code = Code(name, f"{parameters}, i64 %panel", internal=True)
    _Packing(code, dtype, width, lanes, words, shifts, along).write()
    return code


class _Packing:
    def __init__(
        self, code: Code, dtype: DType, width: int, lanes: int, words: Words, shifts: bool,
        along: bool,
    ):  # fmt: skip
        self.code, self.dtype, self.width, self.lanes = code, dtype, width, lanes
        self.kind = "i8" if dtype in BYTES else "i16"
        self.words, self.shifts, self.along = words, shifts, along
        self.stride, self.rows, self.depth, self.panel = (
            Ref(f"%{name}", "i64") for name in ("stride", "rows", "depth", "panel")
        )

    def write(self) -> None:
        """Whole words of whole vectors, or of whole panels, at once; the others one by one."""
        code, places = self.code, constant(self.words.places, "i64")
        whole = code.binary("udiv", self.depth, places)
        each = self.words.places * self.words.step
        more = code.binary("add", self.depth, constant(each - 1, "i64"))
        count = code.binary("udiv", more, constant(each, "i64"))
        count = code.binary("mul", count, constant(self.words.step, "i64"))
        panels = code.open_loop(ZERO, self.rows, self.width, stem="row")
        row = panels.variable
        number = code.binary("udiv", row, constant(self.width, "i64"))
        to = self._at("i32", Ref("%to", "ptr"), code.binary("mul", number, self.panel))
        fast = code.compare("icmp uge", whole, constant(self.lanes, "i64"))
        if not self.along:
            left = code.binary("sub", self.rows, row)
            fast = code.compare("icmp uge", left, constant(self.width, "i64"))
        done = code.select(fast, whole, ZERO)
        (self._along if self.along else self._across)(row, done, to)
        self._one_by_one(row, done, count, to)
        code.close_loop(panels)

    def _at(self, kind: str, start: Ref, elements: Ref) -> Ref:
        return self.code.let(f"getelementptr {kind}, ptr {start.text}, i64 {elements.text}", "ptr")

    def _row(self, row: Ref, number: int) -> Ref:
        code = self.code
        place = code.binary("add", row, constant(number, "i64"))
        place = code.intrinsic("umin", [place, code.binary("sub", self.rows, ONE)])
        return self._at(self.kind, Ref("%from", "ptr"), code.binary("mul", place, self.stride))

    def _wide(self, value: Ref, kind: str) -> Ref:
        if value.type == kind:
            return value
        return self.code.convert("sext" if self.dtype is int8 else "zext", value, kind)

    def _shifted(self, value: Ref) -> Ref:
        return self.code.binary("xor", value, self.words.offset) if self.shifts else value

    def _load(self, at: Ref) -> Ref:
        """A vector of words whose places are neighbours in memory."""
        code, lanes = self.code, self.lanes
        if self.words.places * self.dtype.itemsize == 4:
            text = f"load {vector('i32', lanes)}, ptr {at.text}, align 1"
            return self._shifted(code.let(text, "i32", lanes))
        text = f"load {vector('i8', 2 * lanes)}, ptr {at.text}, align 1"
        pairs = self._wide(code.let(text, "i8", 2 * lanes), "i16")
        return code.let(f"bitcast {pairs.typed} to {vector('i32', lanes)}", "i32", lanes)

    def _along(self, row: Ref, stop: Ref, to: Ref) -> None:
        """Squares of words, transposed in registers. The last one ends where K does, and copies a
        part of the one before again."""
        code, lanes = self.code, self.lanes
        starts = [self._row(row, i) for i in range(self.width)]
        final = code.binary("sub", stop, constant(lanes, "i64"))
        k = code.open_loop(ZERO, stop, lanes, stem="k")
        word = code.intrinsic("umin", [k.variable, final])
        base = self._at("i32", to, code.binary("mul", word, constant(self.width, "i64")))
        element = code.binary("mul", word, constant(self.words.places, "i64"))
        for first in range(0, self.width, lanes):
            here = [self._at(self.kind, s, element) for s in starts[first : first + lanes]]
            some = [self._load(at) for at in here]
            for number, column in enumerate(transposed(code, some)):
                part = column if len(some) == lanes else head(code, column, len(some))
                place = constant(number * self.width + first, "i64")
                store(code, part, self._at("i32", base, place))
        code.close_loop(k)

    def _across(self, row: Ref, stop: Ref, to: Ref) -> None:
        """A word of each row, from as many lines of memory as it has places."""
        code, places = self.code, self.words.places
        bits, kind = 32 // places, f"i{32 // places}"
        k = code.open_loop(ZERO, stop, 1, stem="k")
        place = code.binary("mul", k.variable, constant(places, "i64"))
        word: Ref | None = None
        for i in range(places):
            line = code.binary("add", place, constant(i, "i64"))
            at = code.binary("add", code.binary("mul", line, self.stride), row)
            source = self._at(self.kind, Ref("%from", "ptr"), at)
            load = f"load {vector(self.kind, self.width)}, ptr {source.text}, align 1"
            loaded = self._wide(code.let(load, self.kind, self.width), kind)
            part = code.convert("zext", loaded, "i32")
            if word is None:
                word = part
                continue
            part = code.binary("shl", part, constant(i * bits, "i32"))
            word = code.binary("or", word, part)
        assert word is not None
        target = self._at("i32", to, code.binary("mul", k.variable, constant(self.width, "i64")))
        store(code, self._shifted(word), target)
        code.close_loop(k)

    def _one_by_one(self, row: Ref, first: Ref, stop: Ref, to: Ref) -> None:
        code, places = self.code, self.words.places
        bits, kind = 32 // places, f"i{32 // places}"
        k = code.open_loop(first, stop, 1, stem="k")
        place = code.binary("mul", k.variable, constant(places, "i64"))
        left = code.binary("sub", self.depth, place)
        here = code.intrinsic("smin", [left, constant(places, "i64")])
        i = code.open_loop(ZERO, constant(self.width, "i64"), 1, stem="i")
        own = code.binary("add", row, i.variable)
        own = code.intrinsic("umin", [own, code.binary("sub", self.rows, ONE)])
        p = code.open_loop(ZERO, here, 1, [constant(0, "i32")], stem="p")
        ((word, _),) = p.carried
        at = code.binary("add", place, p.variable)
        slow, fast = (own, at) if self.along else (at, own)
        source = code.binary("add", code.binary("mul", slow, self.stride), fast)
        source = self._at(self.kind, Ref("%from", "ptr"), source)
        one = code.let(f"load {self.kind}, ptr {source.text}", self.kind)
        part = code.convert("zext", self._wide(one, kind), "i32")
        distance = code.binary("mul", p.variable, constant(bits, "i64"))
        part = code.binary("shl", part, code.convert("trunc", distance, "i32"))
        (word,) = code.close_loop(p, [code.binary("or", word, part)])
        target = code.binary("mul", k.variable, constant(self.width, "i64"))
        target = self._at("i32", to, code.binary("add", target, i.variable))
        word = self._shifted(word)
        code.add(f"store {word.typed}, ptr {target.text}, align 4")
        code.close_loop(i)
        code.close_loop(k)
