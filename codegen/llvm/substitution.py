"""Triangular systems with few right sides: LLVM IR for any sizes.

Rows of the matrix are read as they lie, once for four right sides. BLAS copies all of the matrix
first, or reads it once for each side.
"""

from __future__ import annotations

from .code import Code, module_text
from .types import Ref, constant, integer, suffix, vector

PARAMETERS = "ptr %a, ptr %x, i64 %n, i64 %k, i64 %count, i64 %unit"
_SIDES = 4


def text(kind: str, upper: bool, vector_bytes: int) -> str:
    """kernel(a, x, n, k, count, unit): overwrites x[count, k, n] by the y of a @ yᵀ = xᵀ, for one
    triangle of a[count, n, n]. unit: whether its diagonal counts as ones."""
    return module_text([_Writer(kind, upper, vector_bytes).code])


class _Writer:
    def __init__(self, kind: str, upper: bool, vector_bytes: int):
        self.kind, self.bytes = kind, {"float": 4, "double": 8}[kind]
        self.lanes = vector_bytes // self.bytes
        self.code = code = Code("kernel", PARAMETERS)
        n, k = Ref("%n", "i64"), Ref("%k", "i64")
        is_unit = code.compare("icmp ne", Ref("%unit", "i64"), integer(0))
        matrices = code.open_loop(integer(0), Ref("%count", "i64"))
        square = code.binary("mul", matrices.variable, code.binary("mul", n, n))
        first = code.binary("mul", matrices.variable, k)
        last = code.binary("sub", k, integer(1))
        groups = code.open_loop(integer(0), k, _SIDES)
        sides = []
        for i in range(_SIDES):  # sides behind the last one repeat it
            side = code.intrinsic("smin", [code.binary("add", groups.variable, integer(i)), last])
            sides.append(code.binary("mul", code.binary("add", first, side), n))
        steps = code.open_loop(integer(0), n)
        row = steps.variable
        if upper:
            row = code.binary("sub", code.binary("sub", n, integer(1)), row)
        begin = code.binary("add", row, integer(1)) if upper else integer(0)
        line = code.binary("add", square, code.binary("mul", row, n))
        sums = self._products(line, sides, begin, n if upper else row)
        diagonal = self._load("%a", code.binary("add", line, row))
        diagonal = code.select(is_unit, constant(1, kind), diagonal)
        found = []
        for side, total in zip(sides, sums):
            at = self._place("%x", code.binary("add", side, row))
            given = code.let(f"load {kind}, {at.typed}, align {self.bytes}", kind)
            found.append((at, code.binary("fdiv", code.binary("fsub", given, total), diagonal)))
        for at, value in found:
            code.add(f"store {value.typed}, {at.typed}, align {self.bytes}")
        for loop in (steps, groups, matrices):
            code.close_loop(loop)

    def _place(self, base: str, place: Ref) -> Ref:
        return self.code.let(f"getelementptr {self.kind}, ptr {base}, {place.typed}", "ptr")

    def _load(self, base: str, place: Ref, lanes: int = 1) -> Ref:
        at = self._place(base, place)
        text = f"load {vector(self.kind, lanes)}, {at.typed}, align {self.bytes}"
        return self.code.let(text, self.kind, lanes)

    def _masked(self, base: str, place: Ref, mask: Ref) -> Ref:
        full, of = vector(self.kind, self.lanes), suffix(self.kind, self.lanes)
        symbol = f"@llvm.masked.load.{of}.p0"
        self.code.declare(f"declare {full} {symbol}(ptr, i32, <{self.lanes} x i1>, {full})")
        text = f"{self._place(base, place).typed}, i32 {self.bytes}, {mask.typed}"
        text = f"call {full} {symbol}({text}, {full} zeroinitializer)"
        return self.code.let(text, self.kind, self.lanes)

    def _products(self, line: Ref, sides: list[Ref], begin: Ref, end: Ref) -> list[Ref]:
        """The sums over j of a row times each side, begin <= j < end."""
        code, lanes = self.code, self.lanes
        count = code.binary("sub", end, begin)
        whole = code.binary("add", begin, code.binary("and", count, integer(-lanes)))
        zeros = [constant(0, self.kind, lanes)] * _SIDES
        loop = code.open_loop(begin, whole, lanes, zeros)
        held = [phi for phi, _ in loop.carried]
        factor = self._load("%a", code.binary("add", line, loop.variable), lanes)
        sums = []
        for side, total in zip(sides, held):
            x = self._load("%x", code.binary("add", side, loop.variable), lanes)
            sums.append(code.intrinsic("fma", [factor, x, total]))
        sums = code.close_loop(loop, sums)
        numbers = ", ".join(f"i64 {i}" for i in range(lanes))
        rest = code.splat(code.binary("sub", end, whole), lanes)
        mask = code.compare("icmp slt", Ref(f"<{numbers}>", "i64", lanes), rest)
        factor = self._masked("%a", code.binary("add", line, whole), mask)
        found = []
        for side, total in zip(sides, sums):
            x = self._masked("%x", code.binary("add", side, whole), mask)
            total = code.intrinsic("fma", [factor, x, total])
            while total.lanes > 1:
                half = total.lanes // 2
                if half == 1:
                    parts = [code.extract(total, i) for i in (0, 1)]
                else:
                    parts = [code.moved(total, range(i, i + half)) for i in (0, half)]
                total = code.binary("fadd", parts[0], parts[1])
            found.append(total)
        return found
