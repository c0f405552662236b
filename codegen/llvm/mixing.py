"""Real lines as half as many complex numbers: each number of the transform is mixed with the
conjugate of its mirror.

x has n = 2 m real numbers, X is their transform, and Z that of the pairs x[2j] + i x[2j+1]. With
w = exp(-2 pi i / n) and * for the conjugate,

    2 X[k] = Z[k] + Z*[m-k] - i w^k (Z[k] - Z*[m-k])    for k = 0 … m, where Z[m] = Z[0]
    2 Z[k] = X[k] + X*[m-k] + i w^-k (X[k] - X*[m-k])   for k = 0 … m-1
"""

from __future__ import annotations

from .butterflies import times
from .code import Code, module_text
from .fourier import BUFFERS
from .lines import Form, Line, Lines
from .machine import Machine
from .math.expression import Expr, where
from .types import Ref, constant

NUMBERS = "middle blocks read_outer write_outer".split()
"""The words of a kernel behind the buffers of transforms. middle: m. blocks: those of each outer
place. The table of the turns has what the differences are multiplied by, without the factor 1/2."""
BLOCK = 1024
"""The numbers of a block."""


def emit(kind: str, inverse: bool, machine: Machine) -> str:
    """The module, whose function `kernel` takes what those of transforms do. Without `inverse` it
    writes 2 X and sets Z[m], for which the input has room; with it, it writes 2 Z. A line has at
    least as many numbers as a vector."""
    form = Form(kind)
    return module_text([_Mixing(form, form.lanes(machine), inverse).code]) + machine.attributes


class _Mixing(Lines):
    def __init__(self, form: Form, lanes: int, inverse: bool):
        self.form, self.lanes, self.whole = form, lanes, True
        self.code = code = Code("kernel", "ptr %words, i64 %first, i64 %last")
        self.of = code.words([*BUFFERS, *NUMBERS], len(BUFFERS))
        middle = self.of["middle"]
        count = middle if inverse else self._add(middle, self._int(1))
        loop = code.open_loop(Ref("%first", "i64"), Ref("%last", "i64"))
        outer = code.binary("sdiv", loop.variable, self.of["blocks"])
        block = code.binary("sub", loop.variable, self._mul(outer, self.of["blocks"]))
        source = self._number(self.of["in"], self._mul(outer, self.of["read_outer"]))
        target = self._number(self.of["out"], self._mul(outer, self.of["write_outer"]))
        if not inverse:
            bits, align = f"i{16 * form.itemsize}", form.itemsize
            number = code.let(f"load {bits}, {source.typed}, align {align}", bits)
            end = self._number(source, middle)
            code.add(f"store {number.typed}, {end.typed}, align {align}")
        start = self._mul(block, self._int(BLOCK))
        stop = code.intrinsic("smin", [self._add(start, self._int(BLOCK)), count])
        inner = code.open_loop(start, stop, lanes)
        # The last vector of a line overlaps with the one before it.
        k = code.intrinsic("smin", [inner.variable, code.binary("sub", count, self._int(lanes))])
        self._step(source, target, k, inverse)
        code.close_loop(inner)
        code.close_loop(loop)

    def _number(self, base: Ref, place: Ref) -> Ref:
        return self._base(base, Line.COMPLEX, place)

    def _step(self, source: Ref, target: Ref, k: Ref, inverse: bool) -> None:
        code, lanes = self.code, self.lanes
        every = constant(True, "i1", 2 * lanes)
        mirror = code.binary("sub", self.of["middle"], self._add(k, self._int(lanes - 1)))
        a, b = self._masked(self._number(source, k), every)
        back = list(range(lanes - 1, -1, -1))
        c, d = (
            Expr(code, code.moved(part.ref, back))
            for part in self._masked(self._number(source, mirror), every)
        )
        if inverse:  # what the imaginary parts at the ends say has no meaning
            first = code.compare("icmp eq", self._add(k, code.lanes_of(lanes, "i64")), self._int(0))
            b, d = (where(Expr(code, first), 0.0, x) for x in (b, d))
        turn = self._masked(self._number(self.of["turns"], k), every)
        e, f = times((a - c, b + d), turn)
        self._put_masked((a + c + e, b - d + f), self._number(target, k), every)
