"""Parts of sums, products or extrema of rows, of which a tile has some elements: LLVM IR for any
sizes.

    out[row + start / tile] = fold of x[i] over the i of `row`, where (start + i) / length = row

Each row has a part for each of its tiles, in float64. The next row in a tile has the next part, and
so has the next tile of a row. An extremum is NaN if an element is, and a sum of `numbers` passes
NaN over. A complex number is two lanes.
"""

from __future__ import annotations

import itertools
import math

from tilewright.ir.dtype import COMPLEX, DType, complex64, complex128, float32, float64

from .code import Code, module_text
from .types import Ref, computed, constant, integer, vector

WORDS = ("out", "x", "count", "start", "length", "tile")
"""The argument words. length: the elements of a row."""

_OPS = {
    "sum": "fadd", "numbers": "fadd", "product": "fmul", "max": "fcmp ogt", "min": "fcmp olt"
}  # fmt: skip
_NEUTRAL = {"product": 1.0, "max": -math.inf, "min": math.inf}
KINDS = (
    *itertools.product((float32, float64), _OPS),
    *itertools.product((complex64, complex128), ["sum"]),
)
"""The folds that there are."""


def text(dtype: DType, fold: str) -> str:
    """The module with a function `kernel`."""
    return module_text([_Writer(dtype, fold).code])


class _Writer:
    """width: the lanes of an element."""

    def __init__(self, dtype: DType, fold: str):
        self.fold, self.width = fold, 2 if dtype.category == COMPLEX else 1
        self.kind = computed(float32 if dtype in (float32, complex64) else float64)
        self.itemsize = dtype.itemsize // self.width
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        out, x, count, start, length, tile = code.words(WORDS, 2).values()
        number = code.binary("udiv", start, tile)
        runs = code.open_loop(integer(0), count)
        place = code.binary("add", start, runs.variable)
        row = code.binary("udiv", place, length)
        left = code.binary("sub", length, code.binary("urem", place, length))
        run = code.intrinsic("smin", [left, code.binary("sub", count, runs.variable)])
        total = self._run(x, runs.variable, code.binary("add", runs.variable, run))
        part = code.binary("mul", code.binary("add", row, number), integer(self.width))
        at = code.let(f"getelementptr double, {out.typed}, {part.typed}", "ptr")
        code.add(f"store {code.convert('fpext', total, 'double').typed}, {at.typed}, align 8")
        runs.step = run
        code.close_loop(runs)

    def _run(self, x: Ref, begin: Ref, end: Ref) -> Ref:
        """The fold of x[begin:end]: in many lanes, in some, and one by one."""
        code, total, is_nan = self.code, None, None
        for lanes in (64, 8, self.width):
            count = lanes // self.width
            full = code.binary("and", code.binary("sub", end, begin), integer(-count))
            whole = code.binary("add", begin, full)
            initial = [constant(_NEUTRAL.get(self.fold, 0.0), self.kind, lanes)]
            if self._is_extremum:
                initial.append(constant(False, "i1", lanes))
            loop = code.open_loop(begin, whole, count, initial)
            first = code.binary("mul", loop.variable, integer(self.width))
            at = code.let(f"getelementptr {self.kind}, {x.typed}, {first.typed}", "ptr")
            text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.itemsize}"
            loaded = code.let(text, self.kind, lanes)
            part, *some = [phi for phi, _ in loop.carried]
            if self.fold == "numbers":
                is_number = code.compare("fcmp ord", loaded, loaded)
                loaded = code.select(is_number, loaded, constant(0, self.kind, lanes))
            found = [self._folded(loaded, part)]
            if some:
                found.append(code.binary("or", some[0], code.compare("fcmp uno", loaded, loaded)))
            part, *some = code.close_loop(loop, found)
            while part.lanes > self.width:
                half = part.lanes // 2
                part = self._folded(*[_lanes(code, part, first, half) for first in (0, half)])
            total = part if total is None else self._folded(total, part)
            if some:
                any_here = self._any(some[0])
                is_nan = any_here if is_nan is None else code.binary("or", is_nan, any_here)
            begin = whole
        assert total is not None
        if is_nan is not None:  # comparisons passed them over
            total = code.select(is_nan, constant(math.nan, self.kind), total)
        return total

    @property
    def _is_extremum(self) -> bool:
        return self.fold in ("max", "min")

    def _folded(self, a: Ref, b: Ref) -> Ref:
        code, op = self.code, _OPS[self.fold]
        if self._is_extremum:
            return code.select(code.compare(op, a, b), a, b)
        return code.binary(op, a, b)

    def _any(self, mask: Ref) -> Ref:
        if mask.lanes == 1:
            return mask
        bits = self.code.let(f"bitcast {mask.typed} to i{mask.lanes}", f"i{mask.lanes}")
        return self.code.compare("icmp ne", bits, constant(0, bits.type))


def _lanes(code: Code, x: Ref, first: int, lanes: int) -> Ref:
    if lanes == 1:
        return code.extract(x, first)
    return code.moved(x, range(first, first + lanes))
