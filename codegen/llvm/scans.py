"""Running sums, products, extrema and places of extrema along an axis: LLVM IR for any sizes.

    out[i, k, j] = fold of x[i, ..k, j]        x: [outer, length, inner]

Elements of float32 are folded in float64 and rounded once each, and so are the parts of complex
numbers, of which there are products. A place is int64: that of the last of equal extrema, where NaN
is more extreme than numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir.dtype import COMPLEX, FLOAT, DType, complex64, float32, float64

from .code import Code, module_text
from .types import Ref, computed, constant, integer, vector

WORDS = ("out", "x", "outer", "length", "inner")
"""The argument words."""

FOLDS = ("sum", "product", "max", "min", "place of max", "place of min")
_LANES = (16, 1)
_BLOCK = 16
"""Elements of a row that are looked at together for a new extremum, which most rows have seldom."""


def text(dtype: DType, fold: str) -> str:
    """The module with a function `kernel`. fold: one of FOLDS."""
    if dtype.category == COMPLEX:
        assert fold == "product"
        return module_text([_ComplexProduct(dtype).code])
    return module_text([_Writer(dtype, fold).code])


class _Writer:
    def __init__(self, dtype: DType, fold: str):
        self.kind, self.itemsize, self.fold = computed(dtype), dtype.itemsize, fold
        self.is_float = dtype.category == FLOAT
        self.picks, self.places = fold.endswith(("max", "min")), fold.startswith("place")
        self.wide = "double" if dtype is float32 and not self.picks else self.kind
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        out, x, outer, length, inner = code.words(WORDS, 2).values()
        if self.picks:
            inner = self._of_rows(out, x, outer, length, inner)
        rows = code.open_loop(integer(0), outer)
        begin = code.binary("mul", code.binary("mul", rows.variable, length), inner)
        whole = code.binary("and", inner, integer(-_LANES[0]))
        for first, stop, lanes in ((integer(0), whole, _LANES[0]), (whole, inner, _LANES[1])):
            columns = code.open_loop(first, stop, lanes)
            start = code.binary("add", begin, columns.variable)
            self._line(out, x, start, length, inner, lanes)
            code.close_loop(columns)
        code.close_loop(rows)

    def _of_rows(self, out: Ref, x: Ref, outer: Ref, length: Ref, inner: Ref) -> Ref:
        """Fold rows, where `inner` is 1. The `inner` that is left: 0 instead of 1."""
        code = self.code
        is_row = code.compare("icmp eq", inner, integer(1))
        rows = code.open_loop(integer(0), code.select(is_row, outer, integer(0)))
        begin = code.binary("mul", rows.variable, length)
        whole = code.binary("and", length, integer(-_BLOCK))
        first = self._load(x, begin, 1)
        initial = [first, integer(0)] if self.places else [first]
        blocks = code.open_loop(integer(0), whole, _BLOCK, initial)
        held = [phi for phi, _ in blocks.carried]
        start = code.binary("add", begin, blocks.variable)
        block = self._load(x, start, _BLOCK)
        if self.places:
            found = self._places_of_block(out, x, begin, blocks.variable, block, held)
        else:
            found = self._extrema_of_block(out, start, block, held[0])
        held = code.close_loop(blocks, found)
        rest = code.binary("sub", length, whole)
        self._one_by_one(out, x, begin, whole, rest, held)
        code.close_loop(rows)
        return code.select(is_row, integer(0), inner)

    def _places_of_block(
        self, out: Ref, x: Ref, begin: Ref, first: Ref, block: Ref, held: Sequence[Ref]
    ) -> list[Ref]:
        code = self.code
        better = self._is_better(block, code.splat(held[0], _BLOCK))
        bits = code.let(f"bitcast {better.typed} to i{_BLOCK}", f"i{_BLOCK}")
        some = code.compare("icmp ne", bits, constant(0, bits.type))
        self._put(out, code.binary("add", begin, first), code.splat(held[1], _BLOCK))
        # One by one where some element is better: no round otherwise.
        count = code.select(some, integer(_BLOCK), integer(0))
        return self._one_by_one(out, x, begin, first, count, held)

    def _extrema_of_block(self, out: Ref, start: Ref, block: Ref, held: Ref) -> list[Ref]:
        """Each lane takes in the lanes before it: the nearest one, then two more, four, eight."""
        code, by = self.code, 1
        while by < _BLOCK:
            before = code.moved(block, [i - by if i >= by else i for i in range(_BLOCK)])
            block = self._best(before, block)
            by *= 2
        self._put(out, start, self._best(code.splat(held, _BLOCK), block))
        return [self._best(held, code.extract(block, _BLOCK - 1))]

    def _best(self, old: Ref, new: Ref) -> Ref:
        return self.code.select(self._is_better(new, old), new, old)

    def _one_by_one(
        self, out: Ref, x: Ref, begin: Ref, first: Ref, count: Ref, held: Sequence[Ref]
    ) -> list[Ref]:
        """The extremum, and its place, after `count` elements of a row from `first` on."""
        code = self.code
        steps = code.open_loop(first, code.binary("add", first, count), 1, held)
        before = [phi for phi, _ in steps.carried]
        place = code.binary("add", begin, steps.variable)
        loaded = self._load(x, place, 1)
        better = self._is_better(loaded, before[0])
        found = [code.select(better, a, b) for a, b in zip((loaded, steps.variable), before)]
        self._put(out, place, found[-1])
        return code.close_loop(steps, found)

    def _put(self, out: Ref, place: Ref, value: Ref) -> None:
        at = self.code.let(f"getelementptr {value.type}, {out.typed}, {place.typed}", "ptr")
        size = 8 if self.places else self.itemsize
        self.code.add(f"store {value.typed}, {at.typed}, align {size}")

    def _line(self, out: Ref, x: Ref, start: Ref, length: Ref, inner: Ref, lanes: int) -> None:
        code = self.code
        if not self.picks:
            initial = [constant(int(self.fold == "product"), self.wide, lanes)]
        else:
            initial = [self._load(x, start, lanes)]
            if self.places:
                initial.append(constant(0, "i64", lanes))
        steps = code.open_loop(integer(0), length, 1, initial)
        place = code.binary("add", start, code.binary("mul", steps.variable, inner))
        loaded = self._load(x, place, lanes)
        held = [phi for phi, _ in steps.carried]
        if not self.picks:
            op = ("f" if self.is_float else "") + ("add" if self.fold == "sum" else "mul")
            wide = code.convert("fpext", loaded, self.wide) if self.is_float else loaded
            found = [code.binary(op, held[0], wide)]
            made = code.convert("fptrunc", found[0], self.kind) if self.is_float else found[0]
        else:
            here = code.spread(steps.variable, lanes)
            better = self._is_better(loaded, held[0])
            found = [code.select(better, new, old) for new, old in zip((loaded, here), held)]
            made = found[-1]
        self._put(out, place, made)
        code.close_loop(steps, found)

    def _is_better(self, new: Ref, old: Ref) -> Ref:
        """Whether an element takes the place of the extremum so far."""
        code, is_max = self.code, self.fold.endswith("max")
        if not self.is_float:
            return code.compare("icmp sge" if is_max else "icmp sle", new, old)
        better = code.compare("fcmp oge" if is_max else "fcmp ole", new, old)
        return code.binary("or", better, code.compare("fcmp uno", new, new))

    def _load(self, x: Ref, place: Ref, lanes: int) -> Ref:
        at = self.code.let(f"getelementptr {self.kind}, {x.typed}, {place.typed}", "ptr")
        text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.itemsize}"
        return self.code.let(text, self.kind, lanes)


class _ComplexProduct:
    """Products of complex numbers, number by number."""

    def __init__(self, dtype: DType):
        self.kind = computed(float32 if dtype is complex64 else float64)
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        out, x, outer, length, inner = code.words(WORDS, 2).values()
        rows = code.open_loop(integer(0), outer)
        begin = code.binary("mul", code.binary("mul", rows.variable, length), inner)
        columns = code.open_loop(integer(0), inner)
        start = code.binary("add", begin, columns.variable)
        initial = [constant(1, "double"), constant(0, "double")]
        steps = code.open_loop(integer(0), length, 1, initial)
        place = code.binary("add", start, code.binary("mul", steps.variable, inner))
        real, imag = [phi for phi, _ in steps.carried]
        parts = [self._part(x, place, i) for i in (0, 1)]
        a, b = [
            code.convert("fpext", code.let(f"load {self.kind}, {at.typed}", self.kind), "double")
            for at in parts
        ]
        found = [
            code.binary("fsub", code.binary("fmul", real, a), code.binary("fmul", imag, b)),
            code.binary("fadd", code.binary("fmul", real, b), code.binary("fmul", imag, a)),
        ]
        for i, each in enumerate(found):
            made = code.convert("fptrunc", each, self.kind)
            code.add(f"store {made.typed}, {self._part(out, place, i).typed}")
        code.close_loop(steps, found)
        code.close_loop(columns)
        code.close_loop(rows)

    def _part(self, x: Ref, place: Ref, part: int) -> Ref:
        at = self.code.binary("add", self.code.binary("mul", place, integer(2)), integer(part))
        return self.code.let(f"getelementptr {self.kind}, {x.typed}, {at.typed}", "ptr")
