"""Formulas for varying sizes, in terms of the shapes of an ONNX graph's tensors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from .align import Varying

Key = TypeVar("Key")

DIVISORS = (2, 3, 4, 5, 6, 7, 8, 16, 32, 64)


@dataclass(frozen=True)
class Expression:
    """(factor × the product of `terms` + offset) // divisor."""

    terms: tuple[Varying, ...]
    factor: int = 1
    offset: int = 0
    divisor: int = 1

    def text(self, names: Mapping[Varying, str]) -> str | None:
        """The formula as text, if all terms have names."""
        if any(t not in names for t in self.terms):
            return None
        factor = [str(self.factor)] if self.factor != 1 else []
        out = "*".join(factor + [names[t] for t in self.terms])
        if self.offset:
            out += f" {'+' if self.offset > 0 else '-'} {abs(self.offset)}"
        return out if self.divisor == 1 else f"({out})//{self.divisor}"


def express(goal: Varying, known: Sequence[Varying]) -> Expression | None:
    """The simplest formula for `goal` in terms of `known` sizes that is right in every
    recording."""
    if goal in known:
        return Expression((goal,))
    for terms in _products(known):
        product = _product(terms)
        line = _line(product, goal)
        if line is not None:
            return Expression(terms, *line)
    for term in known:
        for divisor in DIVISORS:
            for offset in sorted(range(-divisor, divisor), key=abs):
                if all((t + offset) // divisor == g for t, g in zip(term, goal, strict=True)):
                    return Expression((term,), 1, offset, divisor)
    return None


def _products(known: Sequence[Varying]) -> Iterator[tuple[Varying, ...]]:
    for count in (1, 2, 3):
        yield from itertools.combinations_with_replacement(known, count)


def _product(terms: Sequence[Varying]) -> tuple[int, ...]:
    out = (1,) * len(terms[0])
    for term in terms:
        out = tuple(a * b for a, b in zip(out, term, strict=True))
    return out


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


def probes(sizes: Mapping[Key, int]) -> Iterator[list[dict[Key, int]]]:
    """Lists of sizes at which to record a model. `sizes` are the dynamic axes' in the example.

    Each list changes every axis alone and all together, often enough to tell a line from a curve. A
    model may accept only sizes up to a limit, or multiples of a number, so there are several lists
    to try in turn. No size is 1, as that would broadcast.
    """
    plans: tuple[Callable[[int], tuple[int, ...]], ...] = (_downwards, _upwards, _multiples)
    for plan in plans:
        chosen = {key: plan(n) for key, n in sizes.items()}
        base = {key: c[0] for key, c in chosen.items()}
        out = [base]
        for key, values in chosen.items():
            out += [{**base, key: value} for value in values[1:3]]
        out.append({key: values[3] for key, values in chosen.items()})
        yield out


def _downwards(size: int) -> tuple[int, ...]:
    return (size, size - 1, size - 2, size - 3) if size > 4 else _upwards(size)


def _upwards(size: int) -> tuple[int, ...]:
    least = max(size, 2)
    return (least, least + 1, least + 3, least + 4)


def _multiples(size: int) -> tuple[int, ...]:
    least = max(size, 2)
    return (least, 2 * least, 3 * least, 5 * least)
