"""The passes of a Fourier transform: butterflies of a few complex numbers, in all lanes.

A complex number is a pair of values, of which memory has the vector of the real parts before that
of the imaginary ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from .code import Code, module_text
from .machine import Machine
from .math.expression import Expr, fma
from .types import Ref, constant, vector

Pair = tuple[Expr, Expr]


def _plus(a: Pair, b: Pair) -> Pair:
    return a[0] + b[0], a[1] + b[1]


def _minus(a: Pair, b: Pair) -> Pair:
    return a[0] - b[0], a[1] - b[1]


def _down(a: Pair) -> Pair:
    """-i a."""
    return a[1], -a[0]


def times(a: Pair, b: Pair) -> Pair:
    return fma(a[0], b[0], -(a[1] * b[1])), fma(a[0], b[1], a[1] * b[0])


def _two(a: list[Pair]) -> list[Pair]:
    return [_plus(a[0], a[1]), _minus(a[0], a[1])]


def _three(a: list[Pair]) -> list[Pair]:
    both, apart = _plus(a[1], a[2]), _down(_minus(a[1], a[2]))
    sine = math.sin(math.pi / 3)
    middle = [fma(b, -0.5, x) for b, x in zip(both, a[0], strict=True)]
    up = [fma(d, sine, m) for d, m in zip(apart, middle, strict=True)]
    down = [fma(d, -sine, m) for d, m in zip(apart, middle, strict=True)]
    return [_plus(a[0], both), (up[0], up[1]), (down[0], down[1])]


def _four(a: list[Pair]) -> list[Pair]:
    even, odd = _two([a[0], a[2]]), _two([a[1], a[3]])
    turned = _down(odd[1])
    return [
        _plus(even[0], odd[0]),
        _plus(even[1], turned),
        _minus(even[0], odd[0]),
        _minus(even[1], turned),
    ]


def _five(a: list[Pair]) -> list[Pair]:
    c1, c2 = math.cos(2 * math.pi / 5), math.cos(4 * math.pi / 5)
    s1, s2 = math.sin(2 * math.pi / 5), math.sin(4 * math.pi / 5)
    sums = _plus(a[1], a[4]), _plus(a[2], a[3])
    apart = _down(_minus(a[1], a[4])), _down(_minus(a[2], a[3]))
    out = [_plus(a[0], _plus(*sums))]
    found: list[tuple[Pair, Pair]] = []
    for (x, y), (u, v) in (((c1, c2), (s1, s2)), ((c2, c1), (s2, -s1))):
        even = [fma(sums[0][i], x, fma(sums[1][i], y, a[0][i])) for i in range(2)]
        odd = [fma(apart[0][i], u, apart[1][i] * v) for i in range(2)]
        found.append(((even[0], even[1]), (odd[0], odd[1])))
    first, second = found
    return [*out, _plus(*first), _plus(*second), _minus(*second), _minus(*first)]


def _eight(a: list[Pair]) -> list[Pair]:
    even, odd = _four(a[::2]), _four(a[1::2])
    half = math.sqrt(0.5)
    (r, i), (u, v) = odd[1], odd[3]
    odd[1] = (r + i) * half, (i - r) * half
    odd[2] = _down(odd[2])
    odd[3] = (v - u) * half, (u + v) * -half
    return [
        *[_plus(x, y) for x, y in zip(even, odd, strict=True)],
        *[_minus(x, y) for x, y in zip(even, odd, strict=True)],
    ]


def _whole(a: list[Pair]) -> list[Pair]:
    return a


def _ten(a: list[Pair]) -> list[Pair]:
    """By the butterflies of 2 and 5, without turns between them (Good, "The interaction algorithm
    and practical Fourier analysis", 1958)."""
    first, second = (_five([a[(start + 2 * i) % 10] for i in range(5)]) for start in (0, 5))
    out = list(a)
    for i, both in enumerate(zip(first, second, strict=True)):
        out[6 * i % 10], out[(6 * i + 5) % 10] = _two(list(both))
    return out


_SMALL = {1: _whole, 2: _two, 3: _three, 4: _four, 5: _five, 8: _eight, 10: _ten}


def radices(machine: Machine) -> tuple[int, ...]:
    """Those of the passes, from 1 on. 10 numbers with their parts take more than 16 registers."""
    return tuple(radix for radix in _SMALL if radix < 10 or machine.vector_bytes == 64)


@dataclass(frozen=True)
class Cells:
    """Where a pass reads or writes: a buffer of vectors, in which the real parts of a number come
    before the imaginary ones, or the memory of lines that lie side by side.

    spread: whether only each second number in memory counts.
    exchanged: whether the parts change places, as an inverse transform needs it. turned: whether
    what is written there is multiplied by numbers of a table.
    """

    in_memory: bool = False
    spread: bool = False
    exchanged: bool = False
    turned: bool = False


BUFFER = Cells()


@dataclass(frozen=True)
class Pass:
    """y[q + s (r p + j)] = w^(p j) sum of x[q + s (p + m i)] v^(i j), for p < m and q < s, with
    v = exp(-2 pi i / r) and w = exp(-2 pi i / (r m)), whose powers are in a table [m, r-1].

    is_last: m is 1, so there is no table, and results get the factor.
    """

    radix: int
    reads: Cells
    writes: Cells
    is_last: bool

    PARAMETERS = (
        "ptr %x, ptr %y, i64 %m, i64 %s, ptr %w, i64 %read, i64 %write, i64 %read_ahead, "
        "i64 %write_ahead, ptr %turns, i64 %turn"
    )
    """read, write: the bytes from a number of a line in memory to the next one. ahead: the bytes to
    what is fetched. turns: the table [numbers, turn, 2, lanes] for what is written."""


def emit(form: Pass, kind: str, machine: Machine) -> str:
    """The module, whose function `kernel` takes PARAMETERS and the factor, of `kind`."""
    code = Code("kernel", f"{Pass.PARAMETERS}, {kind} %factor")
    _Pass(form, code, kind, machine.vector_bytes // (4 if kind == "float" else 8))
    return module_text([code]) + machine.attributes


class _Pass:
    """The text of a pass."""

    def __init__(self, form: Pass, code: Code, kind: str, lanes: int):
        self.code, self.kind, self.lanes = code, kind, lanes
        radix, zero = constant(form.radix, "i64"), constant(0, "i64")
        m, s = Ref("%m", "i64"), Ref("%s", "i64")
        if form.is_last:
            m = constant(1, "i64")
            factor = Expr(code, code.spread(Ref("%factor", kind), lanes))
        apart = self._product(m, s)
        outer = code.open_loop(zero, m, stem="p")
        p = outer.variable
        table = self._at("%w", self._product(p, constant(2 * (form.radix - 1), "i64")), kind)
        source = self._product(p, s)
        target = self._product(source, radix)
        loop = code.open_loop(zero, s, stem="q")
        values = []
        for i in range(form.radix):
            place = code.binary("add", source, self._product(apart, constant(i, "i64")))
            values.append(self._read(form.reads, code.binary("add", place, loop.variable)))
        for j, value in enumerate(_SMALL[form.radix](values)):
            place = code.binary("add", target, self._product(s, constant(j, "i64")))
            if form.is_last:
                value = value[0] * factor, value[1] * factor
            elif j:
                value = times(value, self._turn(table, j - 1))
            self._write(form.writes, value, code.binary("add", place, loop.variable))
        code.close_loop(loop)
        code.close_loop(outer)

    def _product(self, a: Ref, b: Ref) -> Ref:
        return self.code.binary("mul", a, b)

    def _at(self, base: str, index: Ref, of: str) -> Ref:
        return self.code.let(f"getelementptr {of}, ptr {base}, {index.typed}", "ptr")

    def _cell(self, base: str, place: Ref) -> Ref:
        return self._at(base, place, f"[{2 * self.lanes} x {self.kind}]")

    def _turn(self, table: Ref, j: int) -> Pair:
        """A number of the table in all lanes, loaded where it is needed: registers are few."""
        code, kind, parts = self.code, self.kind, []
        for part in range(2):
            cell = self._at(table.text, constant(2 * j + part, "i64"), kind)
            number = code.let(f"load {kind}, {cell.typed}", kind)
            parts.append(Expr(code, code.splat(number, self.lanes)))
        return parts[0], parts[1]

    def _memory(self, base: str, place: Ref, step: str, to_write: bool, width: int) -> Ref:
        """A place of a line in memory; fetches what lies ahead."""
        code = self.code
        at = self._at(base, self._product(place, Ref(f"%{step}", "i64")), "i8")
        ahead = self._at(at.text, Ref(f"%{step}_ahead", "i64"), "i8")
        for byte in range(0, width * (4 if self.kind == "float" else 8), 64):
            code.prefetch(self._at(ahead.text, constant(byte, "i64"), "i8"), to_write)
        return at

    def _read(self, cells: Cells, place: Ref) -> Pair:
        code, kind, lanes = self.code, self.kind, self.lanes
        if not cells.in_memory:
            return load(code, self._cell("%x", place), kind, lanes)
        width, align = lanes * (4 if cells.spread else 2), 4 if kind == "float" else 8
        at = self._memory("%x", place, "read", False, width)
        found = code.let(f"load {vector(kind, width)}, {at.typed}, align {align}", kind, width)
        if cells.spread:
            found = code.moved(found, range(0, width, 2))
        a, b = apart(code, found)
        return (b, a) if cells.exchanged else (a, b)

    def _write(self, cells: Cells, value: Pair, place: Ref) -> None:
        code, kind = self.code, self.kind
        if cells.turned:
            row = self._product(place, Ref("%turn", "i64"))
            value = times(value, load(code, self._cell("%turns", row), kind, self.lanes))
        if not cells.in_memory:
            store(code, value, self._cell("%y", place), kind, self.lanes)
            return
        both = together(code, value[::-1] if cells.exchanged else value)
        at = self._memory("%y", place, "write", True, both.lanes)
        code.add(f"store {both.typed}, {at.typed}, align {4 if kind == 'float' else 8}")


def apart(code: Code, both: Ref) -> Pair:
    """The parts of complex numbers that alternate."""
    a, b = (code.moved(both, range(part, both.lanes, 2)) for part in range(2))
    return Expr(code, a), Expr(code, b)


def together(code: Code, value: Pair) -> Ref:
    """Complex numbers whose parts alternate."""
    a, b = (x.ref for x in value)
    order = ", ".join(f"i32 {i}, i32 {i + a.lanes}" for i in range(a.lanes))
    text = f"shufflevector {a.typed}, {b.typed}, <{2 * a.lanes} x i32> <{order}>"
    return code.let(text, a.type, 2 * a.lanes)


def load(code: Code, at: Ref, kind: str, lanes: int) -> Pair:
    full, align = vector(kind, lanes), lanes * (4 if kind == "float" else 8)
    second = code.let(f"getelementptr {kind}, {at.typed}, i64 {lanes}", "ptr")
    a, b = (
        Expr(code, code.let(f"load {full}, {x.typed}, align {align}", kind, lanes))
        for x in (at, second)
    )
    return a, b


def store(code: Code, value: Pair, at: Ref, kind: str, lanes: int) -> None:
    align = lanes * (4 if kind == "float" else 8)
    second = code.let(f"getelementptr {kind}, {at.typed}, i64 {lanes}", "ptr")
    for part, x in zip(value, (at, second), strict=True):
        code.add(f"store {part.ref.typed}, {x.typed}, align {align}")
