"""The passes of a Fourier transform: butterflies of a few complex numbers, in all lanes.

A complex number is a pair of values, of which memory has the vector of the real parts before that
of the imaginary ones.
"""

from __future__ import annotations

import math

from .code import Code
from .math.expression import Expr, fma
from .types import Ref, constant, vector

RADICES = (8, 5, 4, 3, 2)
"""The passes come in this order."""

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


_SMALL = {2: _two, 3: _three, 4: _four, 5: _five, 8: _eight}


def define_pass(code: Code, name: str, radix: int, kind: str, lanes: int) -> None:
    """A pass: y[q + s (r p + j)] = w^(p j) sum of x[q + s (p + m i)] v^(i j), for p < m and q < s,
    with v = exp(-2 pi i / r) and w = exp(-2 pi i / (r m)), whose powers are in a table [m, r-1]."""

    def write(inner: Code) -> None:
        place = f"[{2 * lanes} x {kind}]"

        def at(base: str, index: Ref, of: str = place) -> Ref:
            return inner.let(f"getelementptr {of}, ptr {base}, {index.typed}", "ptr")

        def product(a: Ref, b: Ref) -> Ref:
            return inner.binary("mul", a, b)

        m, s, zero = Ref("%m", "i64"), Ref("%s", "i64"), constant(0, "i64")
        apart = product(m, s)
        outer = inner.open_loop(zero, m, stem="p")
        p = outer.variable
        table = at("%w", product(p, constant(2 * (radix - 1), "i64")), kind)
        turns: list[Pair] = []
        for j in range(radix - 1):
            parts = []
            for part in range(2):
                cell = inner.let(f"getelementptr {kind}, {table.typed}, i64 {2 * j + part}", "ptr")
                number = inner.let(f"load {kind}, {cell.typed}", kind)
                parts.append(Expr(inner, inner.splat(number, lanes)))
            turns.append((parts[0], parts[1]))
        source = at("%x", product(p, s))
        target = at("%y", product(product(p, s), constant(radix, "i64")))
        loop = inner.open_loop(zero, s, stem="q")
        q = loop.variable
        values = []
        for i in range(radix):
            index = inner.binary("add", q, product(apart, constant(i, "i64")))
            values.append(load(inner, at(source.text, index), kind, lanes))
        for j, value in enumerate(_SMALL[radix](values)):
            index = inner.binary("add", q, product(s, constant(j, "i64")))
            turned = times(value, turns[j - 1]) if j else value
            store(inner, turned, at(target.text, index), kind, lanes)
        inner.close_loop(loop)
        inner.close_loop(outer)

    code.function(name, "ptr noalias %x, ptr noalias %y, i64 %m, i64 %s, ptr noalias %w", write)


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
