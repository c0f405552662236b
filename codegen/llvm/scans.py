"""Running sums, products and places of extrema along an axis: LLVM IR for any sizes.

    out[i, k, j] = fold of x[i, ..k, j]        x: [outer, length, inner]

Elements of float32 are folded in float64 and rounded once each. A place is int64: that of the last
of equal extrema, where NaN is more extreme than numbers.
"""

from __future__ import annotations

from tilewright.ir.dtype import FLOAT, DType, float32

from .code import Code, module_text
from .types import Ref, computed, constant, vector

WORDS = ("out", "x", "outer", "length", "inner")
"""The argument words."""

FOLDS = ("sum", "product", "max", "min")
_LANES = (16, 1)


def text(dtype: DType, fold: str) -> str:
    """The module with a function `kernel`. fold: one of FOLDS; `max` and `min` give places."""
    return module_text([_Writer(dtype, fold).code])


class _Writer:
    def __init__(self, dtype: DType, fold: str):
        self.kind, self.itemsize, self.fold = computed(dtype), dtype.itemsize, fold
        self.is_float = dtype.category == FLOAT
        self.wide = "double" if dtype is float32 and fold in ("sum", "product") else self.kind
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        out, x, outer, length, inner = map(self._word, WORDS)
        rows = code.open_loop(_int(0), outer)
        begin = code.binary("mul", code.binary("mul", rows.variable, length), inner)
        whole = code.binary("and", inner, _int(-_LANES[0]))
        for first, stop, lanes in ((_int(0), whole, _LANES[0]), (whole, inner, _LANES[1])):
            columns = code.open_loop(first, stop, lanes)
            start = code.binary("add", begin, columns.variable)
            self._line(out, x, start, length, inner, lanes)
            code.close_loop(columns)
        code.close_loop(rows)

    def _line(self, out: Ref, x: Ref, start: Ref, length: Ref, inner: Ref, lanes: int) -> None:
        code = self.code
        if self.fold in ("sum", "product"):
            neutral = int(self.fold == "product")
            initial = [constant(neutral, self.wide, lanes)]
        else:
            first = self._load(x, start, lanes)
            initial = [first, constant(0, "i64", lanes)]
        steps = code.open_loop(_int(0), length, 1, initial)
        place = code.binary("add", start, code.binary("mul", steps.variable, inner))
        loaded = self._load(x, place, lanes)
        held = [phi for phi, _ in steps.carried]
        if self.fold in ("sum", "product"):
            op = ("f" if self.is_float else "") + ("add" if self.fold == "sum" else "mul")
            wide = code.convert("fpext", loaded, self.wide) if self.is_float else loaded
            found = [code.binary(op, held[0], wide)]
            made = code.convert("fptrunc", found[0], self.kind) if self.is_float else found[0]
        else:
            here = code.spread(steps.variable, lanes)
            better = self._is_better(loaded, held[0])
            found = [code.select(better, new, old) for new, old in zip((loaded, here), held)]
            made = found[1]
        size = self.itemsize if self.fold in ("sum", "product") else 8
        at = code.let(f"getelementptr {made.type}, {out.typed}, {place.typed}", "ptr")
        code.add(f"store {made.typed}, {at.typed}, align {size}")
        code.close_loop(steps, found)

    def _is_better(self, new: Ref, old: Ref) -> Ref:
        """Whether an element takes the place of the extremum so far."""
        code, is_max = self.code, self.fold == "max"
        if not self.is_float:
            return code.compare("icmp sge" if is_max else "icmp sle", new, old)
        better = code.compare("fcmp oge" if is_max else "fcmp ole", new, old)
        return code.binary("or", better, code.compare("fcmp uno", new, new))

    def _load(self, x: Ref, place: Ref, lanes: int) -> Ref:
        at = self.code.let(f"getelementptr {self.kind}, {x.typed}, {place.typed}", "ptr")
        text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.itemsize}"
        return self.code.let(text, self.kind, lanes)

    def _word(self, name: str) -> Ref:
        at = self.code.let(f"getelementptr i64, ptr %words, i64 {WORDS.index(name)}", "ptr")
        kind = "ptr" if name in ("out", "x") else "i64"
        return self.code.let(f"load {kind}, {at.typed}, align 8", kind)


def _int(value: int) -> Ref:
    return constant(value, "i64")
