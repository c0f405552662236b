"""Formulas for varying sizes and numbers, in terms of the shapes of an ONNX graph's tensors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

from .align import Varying

Key = TypeVar("Key")

DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)

MOST = {1: 10_000, 2: 24, 3: 10}
"""How many known sizes are looked at for products of one, two and three."""

MOST_SUMMED = 10
"""How many are looked at for sums, and for numbers."""

Term = tuple[int, tuple[Varying, ...]]
"""(factor, sizes): their product."""


@dataclass(frozen=True)
class Expression:
    """((the sum of `terms` + offset) // divisor % modulus) * scale + shift.

    A modulus of 0 is none.
    """

    terms: tuple[Term, ...]
    offset: int = 0
    divisor: int = 1
    modulus: int = 0
    scale: int = 1
    shift: int = 0

    @property
    def sizes(self) -> Iterator[Varying]:
        """The known sizes that it is made of."""
        for _, sizes in self.terms:
            yield from sizes

    def text(self, names: Mapping[Varying, str]) -> str | None:
        """The formula as text, if all sizes have names."""
        if any(size not in names for size in self.sizes):
            return None
        out = ""
        for factor, sizes in self.terms:
            written = "*".join(names[s] for s in sizes)
            written = written if abs(factor) == 1 else f"{abs(factor)}*{written}"
            sign = "-" if factor < 0 else "+"
            out = f"{out} {sign} {written}" if out else written if factor > 0 else f"-{written}"
        out = _plus(out, self.offset)
        if self.divisor != 1:
            out = f"({out})//{self.divisor}"
        if self.modulus:
            out = f"({out})%{self.modulus}"
        if self.scale != 1:
            out = f"{self.scale}*({out})"
        return _plus(out, self.shift)


def _plus(text: str, number: int) -> str:
    return f"{text} {'+' if number > 0 else '-'} {abs(number)}" if number else text


def express(goal: Varying, known: Sequence[Varying]) -> Expression | None:
    """The simplest formula for `goal` in terms of `known` sizes that is right in every
    recording."""
    if goal in known:
        return Expression(((1, (goal,)),))
    for terms in _products(known):
        line = _line(_product(terms), goal)
        if line is not None:
            return Expression(((line[0], terms),), line[1])
    return _quotient(goal, known) or _scaled(goal, known) or _sum(goal, known[:MOST_SUMMED])


def _products(known: Sequence[Varying]) -> Iterator[tuple[Varying, ...]]:
    for count, most in MOST.items():
        yield from itertools.combinations_with_replacement(known[:most], count)


def _product(terms: Sequence[Varying]) -> tuple[int, ...]:
    return tuple(math.prod(each) for each in zip(*terms, strict=True))


def _line(x: Sequence[int], y: Sequence[int]) -> tuple[int, int] | None:
    """(a, b), integers with y = a x + b."""
    points = sorted(set(zip(x, y, strict=True)))
    if len(points) < 2 or points[0][0] == points[1][0]:
        return None
    slope = Fraction(points[1][1] - points[0][1], points[1][0] - points[0][0])
    offset = points[0][1] - slope * points[0][0]
    if slope == 0 or slope.denominator != 1 or offset.denominator != 1:
        return None
    fits = all(slope * a + offset == b for a, b in points)
    return (int(slope), int(offset)) if fits else None


def _quotient(goal: Varying, known: Sequence[Varying]) -> Expression | None:
    """(a t + b) // d, or (a t + b) % m."""
    for term in known:
        for divisor in DIVISORS:
            for factor in range(1, 8):
                # All offsets from `low` to `high` are right.
                low = max(g * divisor - factor * t for t, g in zip(term, goal, strict=True))
                high = min(g * divisor - factor * t for t, g in zip(term, goal, strict=True))
                high += divisor - 1
                if low <= high and math.gcd(factor, divisor) == 1:
                    usual = (
                        o for o in (0, divisor - 1, factor * (divisor - 1)) if low <= o <= high
                    )
                    offset = next(usual, min(range(low, high + 1), key=abs))
                    return Expression(((factor, (term,)),), offset, divisor)
    most = max(goal)
    for term, modulus in itertools.product(known, DIVISORS):
        if modulus <= most or min(goal) < 0:
            continue
        for factor in (1, -1):
            offset = (goal[0] - factor * term[0]) % modulus
            if all((factor * t + offset) % modulus == g for t, g in zip(term, goal, strict=True)):
                return Expression(((factor, (term,)),), offset, 1, modulus)
    return None


def _scaled(goal: Varying, known: Sequence[Varying]) -> Expression | None:
    """A quotient times a number, as the largest multiple of a number that a size holds."""
    scale = math.gcd(*(g - goal[0] for g in goal))
    if scale < 2:
        return None
    shift = goal[0] % scale
    found = _quotient(Varying((g - shift) // scale for g in goal), known)
    return None if found is None else replace(found, scale=scale, shift=shift)


def _sum(goal: Varying, known: Sequence[Varying]) -> Expression | None:
    """A sum of two or three sizes, or products of two, with integer factors."""
    singles = [(t,) for t in known]
    pairs = [*singles, *itertools.combinations_with_replacement(known, 2)]
    for count, terms in ((2, singles), (3, singles), (2, pairs)):
        for chosen in itertools.combinations(terms, count):
            factors = _solved([_product(c) for c in chosen], goal)
            if factors is not None:
                *each, offset = factors
                return Expression(tuple(zip(each, chosen, strict=True)), offset)
    return None


def _solved(columns: Sequence[Sequence[int]], goal: Sequence[int]) -> list[int] | None:
    """Integer factors, none of them zero, and an offset with goal = the sum of factors times
    columns + offset; None if the recordings don't determine them."""
    width = len(columns) + 1
    rows = [[Fraction(v) for v in (*row, 1, g)] for *row, g in zip(*columns, goal, strict=True)]
    for i in range(width):
        pivot = next((r for r in range(i, len(rows)) if rows[r][i]), None)
        if pivot is None:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        rows[i] = [v / rows[i][i] for v in rows[i]]
        for r, row in enumerate(rows):
            if r != i and row[i]:
                rows[r] = [a - row[i] * b for a, b in zip(row, rows[i], strict=True)]
    if len(rows) <= width or any(row[-1] for row in rows[width:]):
        return None
    found = [row[-1] for row in rows[:width]]
    if any(f.denominator != 1 for f in found) or not all(found[:-1]):
        return None
    return [int(f) for f in found]


# ---- numbers ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratio:
    """numerator / denominator, and then ONNX operators of one input, in their order."""

    numerator: Expression | int
    denominator: Expression | int
    functions: tuple[str, ...] = ()


def _square(v: float) -> float:
    return v * v if v > 0 else math.nan


_INVERSES: dict[tuple[str, ...], Callable[[float], float]] = {
    (): lambda v: v,
    ("Sqrt",): _square,
    ("Sqrt", "Neg"): lambda v: _square(-v),
    ("Log",): lambda v: math.exp(v) if v < 40 else math.nan,
    ("Exp",): lambda v: math.log(v) if v > 0 else math.nan,
}
"""Functions by which numbers of a graph may depend on sizes, and their inverses."""

ROUNDING = 4e-7
"""How far a number of a graph, rounded to float32, may lie from that of a formula."""


def express_number(values: Sequence[float], known: Sequence[Varying]) -> Ratio | None:
    """The simplest quotient of sizes, or function of one, that is each recording's number."""
    known = known[:MOST_SUMMED]
    for functions, back in _INVERSES.items():
        found = _ratio([back(v) for v in values], known)
        if found is not None:
            return Ratio(*found, functions)
    return None


def _ratio(
    values: Sequence[float], known: Sequence[Varying]
) -> tuple[Expression | int, Expression | int] | None:
    if not all(map(math.isfinite, values)):
        return None
    for denominator, sizes in _denominators(known, len(values)):
        whole = [round(v * s) for v, s in zip(values, sizes, strict=True)]
        error = (abs(v * s - w) for v, s, w in zip(values, sizes, whole, strict=True))
        if any(e > ROUNDING * max(abs(w), 1e-3) for e, w in zip(error, whole, strict=True)):
            continue
        if len(set(whole)) == 1:
            return whole[0], denominator
        numerator = express(Varying(whole), known)
        if numerator is not None:
            return numerator, denominator
    return None


def _denominators(
    known: Sequence[Varying], count: int
) -> Iterator[tuple[Expression | int, Sequence[int]]]:
    """Candidates, with their values in the recordings."""
    for number in (1, 2, 3, 4):
        yield number, [number] * count
    for size, more in itertools.product(known, (0, -1, 1, -2, 2)):
        if all(s + more > 0 for s in size):
            yield Expression(((1, (size,)),), more), [s + more for s in size]
    for size, factor in itertools.product(known, (2, 3, 4)):
        yield Expression(((factor, (size,)),)), [factor * s for s in size]
    for pair in itertools.combinations_with_replacement(known, 2):
        yield Expression(((1, pair),)), _product(pair)
    for number in range(5, 129):
        yield number, [number] * count
    for size, factor in itertools.product(known, range(5, 33)):
        yield Expression(((factor, (size,)),)), [factor * s for s in size]


# ---- the sizes to record a model at ----------------------------------------------------------


def probes(sizes: Mapping[Key, int]) -> Iterator[list[dict[Key, int]]]:
    """Lists of sizes at which to record a model. `sizes` are the dynamic axes' in the example.

    Each list changes every axis alone and all together, often enough to tell a line from a curve,
    and far enough for the strides of a network to be seen. A model may accept only sizes up to a
    limit, or multiples of a number, so there are several lists to try in turn. No size is 1, as
    that would broadcast. `fresh` gives a list's sizes for a check.
    """
    for plan in _PLANS:
        yield _varied({key: plan(n) for key, n in sizes.items()})


def _varied(chosen: Mapping[Key, Sequence[int]]) -> list[dict[Key, int]]:
    base = {key: c[0] for key, c in chosen.items()}
    out = [base]
    for key, values in chosen.items():
        out += [{**base, key: value} for value in dict.fromkeys(values[1:-1])]
    # All together, each at another place of its list.
    for shift in (0, 1):
        out.append(
            {k: c[1 + (i + shift) % (len(c) - 2)] for i, (k, c) in enumerate(chosen.items())}
        )
    return out


def fresh(sizes: Mapping[Key, int]) -> Iterator[dict[Key, int]]:
    """For each list of `probes`, sizes that it doesn't have, which such a model accepts."""
    for plan in _PLANS:
        yield {key: plan(n)[-1] for key, n in sizes.items()}


def _widely(size: int) -> tuple[int, ...]:
    n = max(size, 2)
    return (n, n + 1, 2 * n + 3, n // 2 + 2 if n > 4 else n + 4, 3 * n + 2, n + 2)


def _downwards(size: int) -> tuple[int, ...]:
    if size < 8:
        return _narrowly(size)
    return (size, size - 1, size // 2 + 1, size // 3 + 1, size - 3, size - 2)


def _upwards(size: int) -> tuple[int, ...]:
    n = max(size, 2)
    return (n, n + 1, n + 3, 2 * n + 1, 3 * n + 2, n + 2)


def _multiples(size: int) -> tuple[int, ...]:
    n = max(size, 2)
    return (n, 2 * n, 3 * n, 5 * n, 7 * n, 4 * n)


def _narrowly(size: int) -> tuple[int, ...]:
    if size < 5:
        return _upwards(size)
    return (size, size - 1, size - 2, size - 3, size - 3 if size < 6 else size - 4, size - 2)


_PLANS: tuple[Callable[[int], tuple[int, ...]], ...] = (
    _widely,
    _downwards,
    _upwards,
    _multiples,
    _narrowly,
)
"""Functions of an axis's size in the example: that to begin with, others, and one for a check."""
