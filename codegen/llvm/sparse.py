"""The product of a sparse matrix by a vector: LLVM IR for any sizes.

    out[positions[i]] += values[sources[i]] * factors[i]

Elements of a row that follow each other, as in a matrix whose rows are sorted, are added in lanes.
flag[0] becomes 1 if a position or source is out of range; nothing outside is read or written then.
"""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .code import Code, module_text
from .types import Ref, computed, constant, integer, vector

BUFFERS = ("out", "values", "positions", "sources", "factors", "flag")
NUMBERS = ("count", "outs", "ins")
WORDS = (*BUFFERS, *NUMBERS)
"""The argument words. outs, ins: the sizes of `out` and `values`."""

_LANES = 8


def text(dtype: DType, index: DType) -> str:
    """The module with a function `kernel`. index: the dtype of positions and sources."""
    return module_text([_Writer(dtype, index).code])


class _Writer:
    def __init__(self, dtype: DType, index: DType):
        self.kind, self.index = computed(dtype), computed(index)
        self.sizes = {self.kind: dtype.itemsize, self.index: index.itemsize}
        self.code = code = Code("kernel", "ptr %words, i64 %chunk")
        self.words = code.words(WORDS, len(BUFFERS))
        count = self.words["count"]
        whole = code.binary("and", count, integer(-_LANES))
        # The row of the lanes, their sums, and whether something was out of range.
        initial = [integer(0), constant(0, self.kind, _LANES), constant(False, "i1")]
        blocks = code.open_loop(integer(0), whole, _LANES, initial)
        row, sums, bad = [phi for phi, _ in blocks.carried]
        at, value, wrong = self._terms(blocks.variable, _LANES)
        same = self._all(code.compare("icmp eq", at, code.spread(row, _LANES)))
        # A block of another row, or of several, is added one by one, after the sums so far.
        self._add(row, self._total(sums), code.select(same, integer(0), integer(1)))
        added = code.binary("fadd", sums, value)
        first, stop = blocks.variable, code.binary("add", blocks.variable, integer(_LANES))
        self._one_by_one(code.select(same, stop, first), stop, bad)
        found = [
            code.extract(at, _LANES - 1),
            code.select(same, added, constant(0, self.kind, _LANES)),
            code.binary("or", bad, wrong),
        ]
        row, sums, bad = code.close_loop(blocks, found)
        self._add(row, self._total(sums), code.intrinsic("smin", [whole, integer(1)]))
        bad = self._one_by_one(whole, count, bad)
        flag = code.let(f"zext {bad.typed} to i64", "i64")
        code.add(f"store {flag.typed}, {self.words['flag'].typed}, align 8")

    def _one_by_one(self, first: Ref, stop: Ref, bad: Ref) -> Ref:
        code = self.code
        loop = code.open_loop(first, stop, 1, [bad])
        at, value, wrong = self._terms(loop.variable, 1)
        self._add(at, value, integer(1))
        (after,) = code.close_loop(loop, [code.binary("or", loop.carried[0][0], wrong)])
        return after

    def _terms(self, place: Ref, lanes: int) -> tuple[Ref, Ref, Ref]:
        """(positions, terms, whether one is out of range) of `lanes` elements. Those out of range
        are taken as 0."""
        code = self.code
        inside, masks = [], []
        for name, size in (("positions", "outs"), ("sources", "ins")):
            raw = self._load(self.words[name], place, self.index, lanes)
            wide = code.convert("sext", raw, "i64")
            mask = code.compare("icmp ult", wide, code.spread(self.words[size], lanes))
            inside.append(code.select(mask, wide, constant(0, "i64", lanes)))
            masks.append(mask)
        at, source = inside
        if lanes == 1:
            value = self._load(self.words["values"], source, self.kind, 1)
        else:
            value = self._gathered(source, lanes)
        term = code.binary(
            "fmul", value, self._load(self.words["factors"], place, self.kind, lanes)
        )
        right = self._all(code.binary("and", masks[0], masks[1]))
        return at, term, code.binary("xor", right, constant(True, "i1"))

    def _gathered(self, source: Ref, lanes: int) -> Ref:
        code, kind = self.code, self.kind
        of = f"v{lanes}{'f32' if kind == 'float' else 'f64'}.v{lanes}p0"
        full, mask = vector(kind, lanes), f"<{lanes} x i1>"
        name = f"@llvm.masked.gather.{of}"
        code.declare(f"declare {full} {name}(<{lanes} x ptr>, i32, {mask}, {full})")
        at = code.let(
            f"getelementptr {kind}, {self.words['values'].typed}, {source.typed}", "ptr", lanes
        )
        text = (
            f"call {full} {name}({at.typed}, i32 {self.sizes[kind]}, "
            f"{mask} splat (i1 true), {full} poison)"
        )
        return code.let(text, kind, lanes)

    def _add(self, row: Ref, value: Ref, times: Ref) -> None:
        """out[row] += value, once or never."""
        code = self.code
        once = code.open_loop(integer(0), times)
        at = code.let(f"getelementptr {self.kind}, {self.words['out'].typed}, {row.typed}", "ptr")
        before = code.let(f"load {self.kind}, {at.typed}", self.kind)
        code.add(f"store {code.binary('fadd', before, value).typed}, {at.typed}")
        code.close_loop(once)

    def _total(self, sums: Ref) -> Ref:
        while sums.lanes > 1:
            half = sums.lanes // 2
            low, high = (self._half(sums, first, half) for first in (0, half))
            sums = self.code.binary("fadd", low, high)
        return sums

    def _half(self, x: Ref, first: int, lanes: int) -> Ref:
        if lanes == 1:
            return self.code.extract(x, first)
        mask = ", ".join(f"i32 {first + i}" for i in range(lanes))
        text = f"shufflevector {x.typed}, {x.full_type} poison, <{lanes} x i32> <{mask}>"
        return self.code.let(text, x.type, lanes)

    def _all(self, mask: Ref) -> Ref:
        if mask.lanes == 1:
            return mask
        bits = self.code.let(f"bitcast {mask.typed} to i{mask.lanes}", f"i{mask.lanes}")
        return self.code.compare("icmp eq", bits, constant(-1, bits.type))

    def _load(self, base: Ref, place: Ref, kind: str, lanes: int) -> Ref:
        at = self.code.let(f"getelementptr {kind}, {base.typed}, {place.typed}", "ptr")
        text = f"load {vector(kind, lanes)}, {at.typed}, align {self.sizes[kind]}"
        return self.code.let(text, kind, lanes)
