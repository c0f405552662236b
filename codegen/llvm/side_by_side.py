"""Elements side by side in memory, in vectors, of which the last one is under a mask."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.dtype import DType

from .code import Code
from .types import Ref, computed, constant, integer, lane_numbers, suffix, vector

_BYTES = 64  # of a vector


class Lines:
    """Loops over lines of any length, in a function that is being written."""

    def __init__(self, code: Code, dtype: DType):
        self.code, self.kind, self.itemsize = code, computed(dtype), dtype.itemsize
        self.lanes = _BYTES // dtype.itemsize

    def over(self, size: Ref, body: Callable[[Ref, Ref | None], None]) -> None:
        """body(place, mask) for all places below `size`, in vectors. mask: None if it is full."""

        def each(place: Ref, mask: Ref | None, _: list[Ref]) -> list[Ref]:
            body(place, mask)
            return []

        self.folded(size, [], each)

    def folded(
        self,
        size: Ref,
        initial: list[Ref],
        body: Callable[[Ref, Ref | None, list[Ref]], list[Ref]],
    ) -> list[Ref]:
        """The same with values that are carried: body(place, mask, values) gives the next ones."""
        code, values = self.code, initial
        whole = code.binary("and", size, integer(-self.lanes))
        for first, stop in ((integer(0), whole), (whole, size)):
            loop = code.open_loop(first, stop, self.lanes, values)
            mask = None
            if stop is size:
                left = code.let(
                    f"trunc {code.binary('sub', size, loop.variable).typed} to i32", "i32"
                )
                mask = code.compare("icmp slt", self.numbers, code.spread(left, self.lanes))
            found = body(loop.variable, mask, [phi for phi, _ in loop.carried])
            values = code.close_loop(loop, found)
        return values

    @property
    def numbers(self) -> Ref:
        """0, 1, 2, …: the lanes."""
        return Ref(lane_numbers(self.lanes), "i32", self.lanes)

    def address(self, base: Ref, place: Ref) -> Ref:
        return self.code.let(f"getelementptr {self.kind}, {base.typed}, {place.typed}", "ptr")

    def load(self, at: Ref, mask: Ref | None, other: float) -> Ref:
        """The elements at an address, and `other` where the mask is off."""
        code, full = self.code, vector(self.kind, self.lanes)
        if mask is None:
            return code.let(
                f"load {full}, {at.typed}, align {self.itemsize}", self.kind, self.lanes
            )
        name = f"@llvm.masked.load.{suffix(self.kind, self.lanes)}.p0"
        code.declare(f"declare {full} {name}(ptr, i32, <{self.lanes} x i1>, {full})")
        rest = constant(other, self.kind, self.lanes)
        text = f"call {full} {name}({at.typed}, i32 {self.itemsize}, {mask.typed}, {rest.typed})"
        return code.let(text, self.kind, self.lanes)

    def store(self, value: Ref, at: Ref, mask: Ref | None) -> None:
        code, full = self.code, vector(self.kind, self.lanes)
        if mask is None:
            code.add(f"store {value.typed}, {at.typed}, align {self.itemsize}")
            return
        name = f"@llvm.masked.store.{suffix(self.kind, self.lanes)}.p0"
        code.declare(f"declare void {name}({full}, ptr, i32, <{self.lanes} x i1>)")
        code.add(f"call void {name}({value.typed}, {at.typed}, i32 {self.itemsize}, {mask.typed})")


def joined(code: Code, fold: str | Callable[[Ref, Ref], Ref], x: Ref) -> Ref:
    """The fold of the lanes of a vector, by an instruction or a function of two values."""

    def both(a: Ref, b: Ref) -> Ref:
        return code.binary(fold, a, b) if isinstance(fold, str) else fold(a, b)

    while x.lanes > 2:
        half = x.lanes // 2
        x = both(*[code.moved(x, range(i, i + half)) for i in (0, half)])
    return x if x.lanes == 1 else both(*[code.extract(x, i) for i in (0, 1)])
