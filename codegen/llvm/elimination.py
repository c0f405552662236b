"""Gaussian elimination of small matrices, a matrix in each lane.

Lanes hold different matrices, so an exchange of rows is a choice for each lane, and nothing
branches on values. The steps and the bits are those of `ir/numeric/elimination.py`.
"""

from __future__ import annotations

from .code import Code, Loop, module_text
from .machine import Machine
from .types import Ref, constant, vector

PARAMETERS = "ptr %a, ptr %out, ptr %pivots, ptr %info, ptr %work, i64 %m, i64 %n, i64 %count"


def lanes_of(machine: Machine, itemsize: int) -> int:
    """The matrices that are eliminated at once."""
    return machine.vector_bytes // itemsize


def emit(kind: str, machine: Machine) -> str:
    """kernel(a, out, pivots, info, work, m, n, count): P a = L U of a[count, m, n], n <= m.

    out[count, m, n]: L below the diagonal and U. pivots: int32 [count, n], from 1 on. info: int32
    [count], the first zero pivot from 1 on, or 0. work: aligned memory for m * n vectors.
    """
    lanes = lanes_of(machine, {"float": 4, "double": 8}[kind])
    code = Code("kernel", PARAMETERS)
    writer = _Writer(code, kind, lanes)
    blocks = code.open_loop(constant(0, "i64"), Ref("%count", "i64"), lanes)
    starts = writer.starts(blocks.variable)
    writer.copy("%a", starts, into=True)
    info = writer.eliminate(starts)
    writer.scatter(info, "%info", starts, constant(1, "i64"), constant(0, "i64"))
    writer.copy("%out", starts, into=False)
    code.close_loop(blocks)
    return module_text([code]) + machine.attributes


class _Writer:
    def __init__(self, code: Code, kind: str, lanes: int):
        self.code, self.kind, self.lanes = code, kind, lanes
        self.bytes = {"float": 4, "double": 8}[kind]
        self.m, self.n = Ref("%m", "i64"), Ref("%n", "i64")

    def starts(self, first: Ref) -> list[Ref]:
        """The number of each lane's matrix. Lanes beyond the last one repeat it."""
        last = self.code.binary("sub", Ref("%count", "i64"), constant(1, "i64"))
        found = []
        for lane in range(self.lanes):
            place = self.code.binary("add", first, constant(lane, "i64"))
            over = self.code.compare("icmp sgt", place, last)
            found.append(self.code.select(over, last, place))
        return found

    def copy(self, base: str, starts: list[Ref], into: bool) -> None:
        """Copy the lanes' matrices from `base` to `work`, or back."""
        code = self.code
        size = code.binary("mul", self.m, self.n)
        matrices = [
            code.let(f"getelementptr {self.kind}, ptr {base}, {at.typed}", "ptr")
            for at in [code.binary("mul", each, size) for each in starts]
        ]
        loop = code.open_loop(constant(0, "i64"), size)
        at = self.vector_at(loop.variable)
        full = vector(self.kind, self.lanes)
        row = Ref("poison", self.kind, self.lanes) if into else self.load(at)
        for lane, matrix in enumerate(matrices):
            text = f"getelementptr {self.kind}, {matrix.typed}, {loop.variable.typed}"
            place = code.let(text, "ptr")
            if into:
                x = code.let(f"load {self.kind}, {place.typed}, align {self.bytes}", self.kind)
                text = f"insertelement {full} {row.text}, {x.typed}, i64 {lane}"
                row = code.let(text, self.kind, self.lanes)
            else:
                x = code.extract(row, lane)
                code.add(f"store {x.typed}, {place.typed}, align {self.bytes}")
        if into:
            self.store(row, at)
        code.close_loop(loop)

    def scatter(self, x: Ref, base: str, starts: list[Ref], step: Ref, offset: Ref) -> None:
        """Store an int32 of each lane at base[matrix * step + offset]."""
        code = self.code
        for lane, start in enumerate(starts):
            at = code.binary("add", code.binary("mul", start, step), offset)
            place = code.let(f"getelementptr i32, ptr {base}, {at.typed}", "ptr")
            code.add(f"store {code.extract(x, lane).typed}, {place.typed}, align 4")

    def eliminate(self, starts: list[Ref]) -> Ref:
        """Factor the matrices in `work`, and give the info of each."""
        code, one = self.code, constant(1, "i64")
        none = constant(0, "i32", self.lanes)
        step = code.open_loop(constant(0, "i64"), self.n, initial=[none])
        j, info = step.variable, step.carried[0][0]
        below = code.binary("add", j, one)
        best = self._pivots(j, below)
        number = code.binary("add", best, constant(1, "i32", self.lanes))
        self.scatter(number, "%pivots", starts, self.n, j)
        self._exchange(j, below, best)
        pivot = self.load(self.place(j, j))
        zero = code.compare("fcmp oeq", pivot, constant(0, self.kind, self.lanes))
        counted = code.spread(code.convert("trunc", below, "i32"), self.lanes)
        first = code.binary("and", zero, code.compare("icmp eq", info, none))
        info = code.select(first, counted, info)
        pivot = code.select(zero, constant(1, self.kind, self.lanes), pivot)
        rows = code.open_loop(below, self.m)
        factor = self._divided(rows, j, pivot)
        columns = code.open_loop(below, self.n)
        at = self.place(rows.variable, columns.variable)
        top = self.load(self.place(j, columns.variable))
        self.store(code.binary("fsub", self.load(at), code.binary("fmul", factor, top)), at)
        code.close_loop(columns)
        code.close_loop(rows)
        return code.close_loop(step, [info])[0]

    def _divided(self, rows: Loop, j: Ref, pivot: Ref) -> Ref:
        at = self.place(rows.variable, j)
        factor = self.code.binary("fdiv", self.load(at), pivot)
        self.store(factor, at)
        return factor

    def _pivots(self, j: Ref, below: Ref) -> Ref:
        """The row of the largest element in column j, from row j on; NaN is largest."""
        code = self.code
        size = code.intrinsic("fabs", [self.load(self.place(j, j))])
        here = code.spread(code.convert("trunc", j, "i32"), self.lanes)
        rows = code.open_loop(below, self.m, initial=[size, here])
        most, at = (phi for phi, _ in rows.carried)
        x = code.intrinsic("fabs", [self.load(self.place(rows.variable, j))])
        larger = code.binary(
            "and", code.compare("fcmp ugt", x, most), code.compare("fcmp ord", most, most)
        )
        row = code.spread(code.convert("trunc", rows.variable, "i32"), self.lanes)
        return code.close_loop(rows, [code.select(larger, x, most), code.select(larger, row, at)])[
            1
        ]

    def _exchange(self, j: Ref, below: Ref, pivots: Ref) -> None:
        """Exchange row j of each lane with its pivot's row."""
        code = self.code
        columns = code.open_loop(constant(0, "i64"), self.n)
        c = columns.variable
        top_at = self.place(j, c)
        rows = code.open_loop(below, self.m, initial=[self.load(top_at)])
        top = rows.carried[0][0]
        at = self.place(rows.variable, c)
        x = self.load(at)
        row = code.spread(code.convert("trunc", rows.variable, "i32"), self.lanes)
        chosen = code.compare("icmp eq", pivots, row)
        self.store(code.select(chosen, top, x), at)
        (top,) = code.close_loop(rows, [code.select(chosen, x, top)])
        self.store(top, top_at)
        code.close_loop(columns)

    # Vectors in `work`.

    def place(self, row: Ref, column: Ref) -> Ref:
        code = self.code
        return self.vector_at(code.binary("add", code.binary("mul", row, self.n), column))

    def vector_at(self, number: Ref) -> Ref:
        full = vector(self.kind, self.lanes)
        return self.code.let(f"getelementptr {full}, ptr %work, {number.typed}", "ptr")

    def load(self, at: Ref) -> Ref:
        full = vector(self.kind, self.lanes)
        text = f"load {full}, {at.typed}, align {self.bytes * self.lanes}"
        return self.code.let(text, self.kind, self.lanes)

    def store(self, x: Ref, at: Ref) -> None:
        self.code.add(f"store {x.typed}, {at.typed}, align {self.bytes * self.lanes}")
