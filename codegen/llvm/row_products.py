"""Products of complex numbers along rows, in one pass.

Vectors of real parts and of imaginary parts, several of each, are multiplied by the numbers of a
row as they come: a product has to be done before its next factor is taken, and the others fill that
time. At the end of a row they are multiplied with each other, in an order that its length decides.
"""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, module_text
from .machine import Machine
from .types import Ref, constant, vector

_CHAINS = 4
_BLOCK = 16  # bytes within which a shuffle takes one instruction

Pair = tuple[Ref, Ref]
"""Real and imaginary parts, a number in each lane."""


def emit(kind: str, machine: Machine) -> str:
    """kernel(z, out, m, n): the product of each row of complex z[m, n]. kind: of the parts."""
    writer = _Writer(kind, machine)
    writer.rows()
    return module_text([writer.code]) + machine.attributes


class _Writer:
    def __init__(self, kind: str, machine: Machine):
        self.code = Code("kernel", "ptr %z, ptr %out, i64 %m, i64 %n")
        self.kind, self.bytes = kind, {"float": 4, "double": 8}[kind]
        self.lanes = machine.vector_bytes // self.bytes

    def rows(self) -> None:
        code = self.code
        none, n = constant(0, "i64"), Ref("%n", "i64")
        rows = code.open_loop(none, Ref("%m", "i64"))
        start = code.binary("mul", rows.variable, n)
        step = _CHAINS * self.lanes
        whole = code.binary("sub", n, code.binary("urem", n, constant(step, "i64")))
        ones = [constant(1, self.kind, self.lanes), constant(0, self.kind, self.lanes)]
        blocks = code.open_loop(none, whole, step, ones * _CHAINS)
        held = [phi for phi, _ in blocks.carried]
        made: list[Ref] = []
        for i, each in enumerate(_pairs(held)):
            place = code.binary("add", start, blocks.variable)
            place = code.binary("add", place, constant(i * self.lanes, "i64"))
            made += self.times(each, self.load(place))
        held = code.close_loop(blocks, made)
        product = self.folded(_pairs(held))
        rest = code.open_loop(whole, n, initial=product)
        real, imag = (phi for phi, _ in rest.carried)
        at = code.binary("add", start, rest.variable)
        product = self.times((real, imag), self.number(at))
        real, imag = code.close_loop(rest, product)
        for i, part in enumerate((real, imag)):
            target = self.address("%out", rows.variable, i)
            code.add(f"store {part.typed}, {target.typed}, align {self.bytes}")
        code.close_loop(rows)

    def times(self, a: Pair, b: Pair) -> Pair:
        def of(op: str, x: Ref, y: Ref) -> Ref:
            return self.code.binary(op, x, y)

        real = of("fsub", of("fmul", a[0], b[0]), of("fmul", a[1], b[1]))
        return real, of("fadd", of("fmul", a[0], b[1]), of("fmul", a[1], b[0]))

    def folded(self, chains: list[Pair]) -> Pair:
        """The product of all lanes of all chains."""
        while len(chains) > 1:
            half = len(chains) // 2
            chains = [self.times(chains[i], chains[i + half]) for i in range(half)]
        ((real, imag),) = chains
        while real.lanes > 1:
            half = real.lanes // 2
            low, high = range(half), range(half, real.lanes)
            parts = [[self.shuffled(x, x, lanes) for x in (real, imag)] for lanes in (low, high)]
            real, imag = self.times((parts[0][0], parts[0][1]), (parts[1][0], parts[1][1]))
        return real, imag

    # Memory.

    def address(self, base: str, place: Ref, part: int = 0) -> Ref:
        number = f"[2 x {self.kind}]"
        return self.code.let(
            f"getelementptr {number}, ptr {base}, {place.typed}, i64 {part}", "ptr"
        )

    def number(self, place: Ref) -> Pair:
        """A single number."""
        real, imag = (
            self.code.let(
                f"load {self.kind}, {self.address('%z', place, i).typed}, align {self.bytes}",
                self.kind,
            )
            for i in range(2)
        )
        return real, imag

    def load(self, place: Ref) -> Pair:
        """As many numbers as there are lanes, in an order that takes no way between the blocks of
        a vector."""
        full = vector(self.kind, self.lanes)
        at = self.address("%z", place)
        low = self.code.let(f"load {full}, {at.typed}, align {self.bytes}", self.kind, self.lanes)
        beyond = self.code.let(f"getelementptr {full}, {at.typed}, i64 1", "ptr")
        text = f"load {full}, {beyond.typed}, align {self.bytes}"
        high = self.code.let(text, self.kind, self.lanes)
        wide = min(_BLOCK // self.bytes, self.lanes)
        blocks = range(0, self.lanes, wide)
        real, imag = (
            self.shuffled(
                low,
                high,
                [
                    base + lane
                    for block in blocks
                    for base in (block, self.lanes + block)
                    for lane in range(part, wide, 2)
                ],
            )
            for part in range(2)
        )
        return real, imag

    def shuffled(self, a: Ref, b: Ref, lanes: Sequence[int]) -> Ref:
        if len(lanes) == 1:  # of the first one
            return self.code.extract(a, lanes[0])
        mask = ", ".join(f"i32 {lane}" for lane in lanes)
        text = f"shufflevector {a.typed}, {b.typed}, <{len(lanes)} x i32> <{mask}>"
        return self.code.let(text, self.kind, len(lanes))


def _pairs(held: Sequence[Ref]) -> list[Pair]:
    return list(zip(held[::2], held[1::2], strict=True))
