"""Softmax and its logarithm along an axis: LLVM IR for any sizes.

    softmax:  out[i, k, j] = exp(x[i, k, j] - top[i, j]) / sum[i, j]
    log:      out[i, k, j] = x[i, k, j] - top[i, j] - log(sum[i, j])

x is [outer, length, inner]. `top` is the largest element along k, and `sum` that of the
exponentials, in float64. In the `safe` form of softmax a line that is all -inf gives zeros.
"""

from __future__ import annotations

import math

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .math import call
from .side_by_side import Lines, joined
from .types import Ref, constant, integer

BUFFERS = ("out", "x")
WORDS = (*BUFFERS, "outer", "length", "inner", "each")
"""The argument words. each: how many of `outer` a chunk computes."""

FORMS = ("softmax", "safe", "log")


def text(dtype: DType, form: str) -> str:
    """The module with a function `kernel`. form: one of FORMS."""
    return module_text([_Writer(dtype, form).code])


class _Writer:
    def __init__(self, dtype: DType, form: str):
        self.form = form
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.lines = Lines(code, dtype)
        self.kind, self.lanes = self.lines.kind, self.lines.lanes
        self.out, self.x, outer, self.length, self.inner, each = code.words(
            WORDS, len(BUFFERS)
        ).values()
        start = code.binary("mul", Ref("%chunk", "i64"), each)
        stop = code.intrinsic("smin", [code.binary("add", start, each), outer])
        self.size = code.binary("mul", self.length, self.inner)
        is_row = code.compare("icmp eq", self.inner, integer(1))
        for write, first, last in (
            (self._row, start, code.select(is_row, stop, start)),
            (self._columns, code.select(is_row, stop, start), stop),
        ):
            loop = code.open_loop(first, last)
            begin = code.binary("mul", loop.variable, self.size)
            write(self.lines.address(self.x, begin), self.lines.address(self.out, begin))
            code.close_loop(loop)

    def _row(self, x: Ref, out: Ref) -> None:
        """A line in lanes."""
        code, lines = self.code, self.lines

        def top(place: Ref, mask: Ref | None, held: list[Ref]) -> list[Ref]:
            return [self._larger(lines.load(lines.address(x, place), mask, -math.inf), held[0])]

        (found,) = lines.folded(self.length, [constant(-math.inf, self.kind, self.lanes)], top)
        shift = code.spread(self._shift(joined(code, self._larger, found)), self.lanes)

        def power(place: Ref, mask: Ref | None, held: list[Ref]) -> list[Ref]:
            made = self._power(lines.load(lines.address(x, place), mask, 0), shift)
            if mask is not None:
                made = code.select(mask, made, constant(0, self.kind, self.lanes))
            if self.form != "log":
                lines.store(made, lines.address(out, place), mask)
            return [self._plus(held[0], made)]

        (total,) = lines.folded(self.length, [constant(0, "double", self.lanes)], power)
        last = code.spread(self._last(joined(code, "fadd", total)), self.lanes)

        def end(place: Ref, mask: Ref | None) -> None:
            self._end(lines.address(x, place), lines.address(out, place), mask, shift, last)

        lines.over(self.length, end)

    def _columns(self, x: Ref, out: Ref) -> None:
        """Lines side by side, one in each lane."""
        self.lines.over(self.inner, lambda place, mask: self._block(x, out, place, mask))

    def _block(self, x: Ref, out: Ref, place: Ref, mask: Ref | None) -> None:
        code, lines = self.code, self.lines

        def at(base: Ref, step: Ref) -> Ref:
            moved = code.binary("add", place, code.binary("mul", step, self.inner))
            return lines.address(base, moved)

        loop = code.open_loop(
            integer(0), self.length, 1, [constant(-math.inf, self.kind, self.lanes)]
        )
        read = lines.load(at(x, loop.variable), mask, 0)
        (found,) = code.close_loop(loop, [self._larger(read, loop.carried[0][0])])
        shift = self._shift(found)
        loop = code.open_loop(integer(0), self.length, 1, [constant(0, "double", self.lanes)])
        made = self._power(lines.load(at(x, loop.variable), mask, 0), shift)
        if self.form != "log":
            lines.store(made, at(out, loop.variable), mask)
        (total,) = code.close_loop(loop, [self._plus(loop.carried[0][0], made)])
        last = self._last(total)
        loop = code.open_loop(integer(0), self.length)
        self._end(at(x, loop.variable), at(out, loop.variable), mask, shift, last)
        code.close_loop(loop)

    def _larger(self, new: Ref, old: Ref) -> Ref:
        """Passes NaN over, which makes the sum NaN."""
        return self.code.select(self.code.compare("fcmp ogt", new, old), new, old)

    def _shift(self, top: Ref) -> Ref:
        if self.form != "safe":
            return top
        none = self.code.compare("fcmp oeq", top, constant(-math.inf, self.kind))
        return self.code.select(none, constant(0, self.kind), top)

    def _power(self, x: Ref, shift: Ref) -> Ref:
        return call(self.code, "exp", [self.code.binary("fsub", x, shift)])

    def _plus(self, total: Ref, made: Ref) -> Ref:
        return self.code.binary("fadd", total, self.code.convert("fpext", made, "double"))

    def _last(self, total: Ref) -> Ref:
        """What all elements of a line are divided by, or what is taken from them."""
        code = self.code
        total = code.convert("fptrunc", total, self.kind)
        if self.form == "log":
            return call(code, "log", [total])
        if self.form == "safe":
            none = code.compare("fcmp oeq", total, constant(0, self.kind))
            total = code.select(none, constant(1, self.kind), total)
        return total

    def _end(self, x: Ref, out: Ref, mask: Ref | None, shift: Ref, last: Ref) -> None:
        code, lines = self.code, self.lines
        if self.form == "log":
            found = code.binary("fsub", code.binary("fsub", lines.load(x, mask, 0), shift), last)
        else:
            found = code.binary("fdiv", lines.load(out, mask, 0), last)
        lines.store(found, out, mask)
