"""The loss of classes of rows, and its gradient for the scores: LLVM IR for any sizes.

    loss:      out[0] = -sum of x[i, target[i]] over the rows that count, or their mean
    gradient:  out[i, j] = (exp(x[i, j]) - (j == target[i])) g[i step], or that over the number of
               rows that count, or times zero for a row that doesn't

x has the logarithms of probabilities. A row whose target is `ignored` doesn't count. The word `bad`
becomes 1 if another target is no column; nothing is read for it. Sums are taken in float64.
"""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .math import call
from .side_by_side import Lines, joined
from .types import Ref, computed, constant, integer, suffix, vector

NUMBERS = ("rows", "columns", "ignored", "mean")
LOSS = ("out", "x", "target", *NUMBERS, "bad")
GRADIENT = ("out", "x", "target", "g", *NUMBERS, "step", "bad")
"""The argument words. mean: 1 for the mean. step: 1 for a g of each row, 0 for one of all."""
BUFFERS = {LOSS: 3, GRADIENT: 4}

_LANES = 8
_FOLDS = ("fadd", "add", "or")


def loss(dtype: DType) -> str:
    """The module with a function `kernel`."""
    rows = _Rows(dtype, LOSS)
    code, kind, words = rows.code, rows.kind, rows.words
    zero = constant(0, "double")

    def term(row: Ref, target: Ref, counts: Ref, fits: Ref) -> Ref:
        column = code.select(fits, target, integer(0))
        place = code.binary("add", code.binary("mul", row, words["columns"]), column)
        value = rows.elements("x", place, dtype.itemsize)
        return code.select(counts, code.convert("fpext", value, "double"), zero)

    total, count = rows.folded(term)
    total = code.let(f"fneg {total.typed}", "double")
    is_mean = code.compare("icmp ne", words["mean"], integer(0))
    total = code.binary("fdiv", total, code.select(is_mean, count, constant(1, "double")))
    code.add(f"store {code.convert('fptrunc', total, kind).typed}, {words['out'].typed}")
    return module_text([code])


def gradient(dtype: DType) -> str:
    """The module with a function `kernel`."""
    rows = _Rows(dtype, GRADIENT)
    code, kind, words, lines = rows.code, rows.kind, rows.words, Lines(rows.code, dtype)
    _, count = rows.folded(lambda row, *_: constant(0, "double", row.lanes))
    is_mean = code.compare("icmp ne", words["mean"], integer(0))
    count = code.convert("fptrunc", count, kind)
    count = code.select(is_mean, count, constant(1, kind))
    loop = code.open_loop(integer(0), words["rows"])
    target, counts, _ = rows.target(loop.variable)
    g = rows.address("g", code.binary("mul", loop.variable, words["step"]), kind)
    slope = code.binary("fdiv", code.let(f"load {kind}, {g.typed}", kind), count)
    slope = code.select(counts, slope, constant(0, kind))
    begin = code.binary("mul", loop.variable, words["columns"])
    x, out = (lines.address(words[name], begin) for name in ("x", "out"))

    def each(place: Ref, mask: Ref | None) -> None:
        made = call(code, "exp", [lines.load(lines.address(x, place), mask, 0)])
        from_here = code.let(f"trunc {code.binary('sub', target, place).typed} to i32", "i32")
        hit = code.compare("icmp eq", lines.numbers, code.spread(from_here, lines.lanes))
        less = code.binary("fsub", made, constant(1, kind))
        made = code.binary("fmul", code.select(hit, less, made), slope)
        lines.store(made, lines.address(out, place), mask)

    lines.over(words["columns"], each)
    code.close_loop(loop)
    return module_text([code])


class _Rows:
    """A function over rows that have a target each."""

    def __init__(self, dtype: DType, names: tuple[str, ...]):
        self.kind, self.names = computed(dtype), names
        self.code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = self.code.words(names, BUFFERS[names])

    def address(self, name: str, place: Ref, of: str) -> Ref:
        return self.code.let(f"getelementptr {of}, {self.words[name].typed}, {place.typed}", "ptr")

    def elements(self, name: str, places: Ref, itemsize: int) -> Ref:
        """The elements of a buffer at places."""
        code, kind, lanes = self.code, self.kind, places.lanes
        at = code.let(
            f"getelementptr {kind}, {self.words[name].typed}, {places.typed}", "ptr", lanes
        )
        if lanes == 1:
            return code.let(f"load {kind}, {at.typed}", kind)
        full, mask = vector(kind, lanes), f"<{lanes} x i1>"
        called = f"@llvm.masked.gather.{suffix(kind, lanes)}.v{lanes}p0"
        code.declare(f"declare {full} {called}(<{lanes} x ptr>, i32, {mask}, {full})")
        text = f"({at.typed}, i32 {itemsize}, {mask} splat (i1 true), {full} poison)"
        return code.let(f"call {full} {called}{text}", kind, lanes)

    def target(self, row: Ref, lanes: int = 1) -> tuple[Ref, Ref, Ref]:
        """(the target of a row, or of several from it on, whether it counts, whether it is a
        column)."""
        code = self.code
        at = self.address("target", row, "i64")
        target = code.let(f"load {vector('i64', lanes)}, {at.typed}, align 8", "i64", lanes)
        counts = code.compare("icmp ne", target, self.words["ignored"])
        return target, counts, code.compare("icmp ult", target, self.words["columns"])

    def folded(self, term: Callable[[Ref, Ref, Ref, Ref], Ref]) -> tuple[Ref, Ref]:
        """(the sum of term(row, target, counts, fits), how many rows count), in several lanes and
        then row by row. Notes bad targets."""
        code, size = self.code, self.words["rows"]
        whole = code.binary("and", size, integer(-_LANES))
        total, count = constant(0, "double"), integer(0)
        bad = constant(False, "i1")
        for first, stop, lanes in ((integer(0), whole, _LANES), (whole, size, 1)):
            kinds = (("double", 0), ("i64", 0), ("i1", False))
            initial = [constant(none, kind, lanes) for kind, none in kinds]
            rows = code.open_loop(first, stop, lanes, initial)
            held = [phi for phi, _ in rows.carried]
            target, counts, fits = self.target(rows.variable, lanes)
            row = rows.variable
            if lanes > 1:
                row = code.binary("add", code.spread(row, lanes), code.lanes_of(lanes, "i64"))
            value = term(row, target, counts, fits)
            wrong = code.binary("xor", fits, constant(True, "i1", lanes))
            missing = code.binary("and", counts, wrong)
            found = [value, code.convert("zext", counts, "i64"), missing]
            found = [
                code.binary(op, old, new) for op, old, new in zip(_FOLDS, held, found, strict=True)
            ]
            ends = [joined(code, op, x) for op, x in zip(_FOLDS, code.close_loop(rows, found))]
            total, count, bad = [
                code.binary(op, old, new)
                for op, old, new in zip(_FOLDS, (total, count, bad), ends, strict=True)
            ]
        flag = code.let(f"zext {bad.typed} to i64", "i64")
        place = integer(self.names.index("bad"))
        at = code.let(f"getelementptr i64, ptr %words, {place.typed}", "ptr")
        code.add(f"store {flag.typed}, {at.typed}, align 8")
        return total, code.let(f"sitofp {count.typed} to double", "double")
