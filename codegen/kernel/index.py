"""Integer index expressions over the axes of a kernel, kept in a normal form.

An Index is const + sum of coefficient * atom. An atom is an Axis, a floor division or a remainder
of another Index by a positive constant, or a Data value (a position that is read at run time). The
normal form makes "is this affine", "do these two agree" and "which stride has this axis" trivial,
and the bounds of the axes let divisions cancel where a reshape put them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.ir.failure import FAILURES
from tilewright.ir.node import format_location

if TYPE_CHECKING:
    from .ir import Value


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop of a kernel: 0 <= axis < extent."""

    name: str
    extent: int


@dataclass(frozen=True, slots=True)
class FloorDiv:
    """floor(index / divisor), index >= 0."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Mod:
    """index mod divisor, index >= 0."""

    index: Index
    divisor: int


@dataclass(frozen=True, slots=True)
class Check:
    """A check that 0 <= value < size.

    failure: the name of its error in ir/failure.py. axis: the dimension indexed. loc: the user's
    line.
    """

    size: int
    axis: int
    loc: tuple[str, int]
    failure: str = "position"

    def error(self, value: int) -> Exception:
        where = format_location(self.loc) if self.loc[0] else ""
        return FAILURES[self.failure].at(value, self.axis, self.size, where)


@dataclass(frozen=True, slots=True)
class Data:
    """An int64 value that the kernel computes, checks, and uses as a position.

    holds: whether the value is known to pass the check, which targets may leave out.
    """

    value: Value
    check: Check
    holds: bool = False

    @property
    def size(self) -> int:
        return self.check.size


Atom = Axis | FloorDiv | Mod | Data


@dataclass(frozen=True, eq=False, slots=True)
class Index:
    """const + sum of coefficient * atom; terms hold no zero coefficient and no atom twice.

    The order of the terms carries no meaning; indices that differ in it alone are equal.
    """

    terms: tuple[tuple[Atom, int], ...]
    const: int = 0

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Index) or self.const != other.const:
            return False
        return self.terms == other.terms or frozenset(self.terms) == frozenset(other.terms)

    def __hash__(self) -> int:
        terms = self.terms
        if len(terms) == 1:
            return hash((terms[0], self.const))
        return hash((frozenset(terms), self.const))

    def __add__(self, other: Index | int) -> Index:
        if isinstance(other, int):
            return Index(self.terms, self.const + other)
        merged = dict(self.terms)
        for atom, coefficient in other.terms:
            merged[atom] = merged.get(atom, 0) + coefficient
        return _normal(merged, self.const + other.const)

    def __sub__(self, other: Index | int) -> Index:
        return self + other * -1

    def __mul__(self, factor: int) -> Index:
        if factor == 0:
            return ZERO
        return Index(tuple((a, c * factor) for a, c in self.terms), self.const * factor)

    def coefficient(self, atom: Atom) -> int:
        return dict(self.terms).get(atom, 0)

    def lone_axis(self) -> Axis | None:
        """The axis whose position this is, if the index is nothing more."""
        if len(self.terms) == 1 and self.const == 0:
            ((atom, coefficient),) = self.terms
            if isinstance(atom, Axis) and coefficient == 1:
                return atom
        return None

    @property
    def is_affine(self) -> bool:
        """Whether only axes occur."""
        return all(isinstance(a, Axis) for a, _ in self.terms)

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest value."""
        low = high = self.const
        for atom, coefficient in self.terms:
            a, b = _atom_bounds(atom)
            low += min(a * coefficient, b * coefficient)
            high += max(a * coefficient, b * coefficient)
        return low, high

    def axes(self) -> set[Axis]:
        """Every axis that occurs, also inside of divisions and data."""
        found: set[Axis] = set()
        for atom, _ in self.terms:
            if isinstance(atom, Axis):
                found.add(atom)
            elif isinstance(atom, Data):
                found |= atom.value.axes()
            else:
                found |= atom.index.axes()
        return found


ZERO = Index((), 0)


def constant(value: int) -> Index:
    return Index((), value)


def of(axis: Axis) -> Index:
    """The position along `axis`; zero where there is only one."""
    return Index(((axis, 1),)) if axis.extent != 1 else ZERO


def data(atom: Data) -> Index:
    return Index(((atom, 1),))


def _atom_bounds(atom: Atom) -> tuple[int, int]:
    if isinstance(atom, Axis):
        return 0, max(atom.extent - 1, 0)
    if isinstance(atom, Data):
        return 0, max(atom.size - 1, 0)
    low, high = atom.index.bounds()
    if isinstance(atom, FloorDiv):
        return low // atom.divisor, high // atom.divisor
    if low // atom.divisor == high // atom.divisor:
        return low % atom.divisor, high % atom.divisor
    return 0, atom.divisor - 1


def _normal(terms: dict[Atom, int], const: int) -> Index:
    """Drops zeros, and joins quotients and remainders of one dividend.

    (x // d) * d + x % d is x, also where x is a quotient: (x // (c * d)) * d + (x // c) % d is
    x // c. And ((x // d) % e) * d + x % d is x % (d * e).
    """
    remainders = [a for a in terms if isinstance(a, Mod)]
    for rest in remainders:
        factor = terms.get(rest, 0)
        if not factor:
            continue
        for atom, coefficient in terms.items():
            if coefficient != factor * rest.divisor:
                continue
            if isinstance(atom, FloorDiv):
                same = atom.divisor == rest.divisor and atom.index == rest.index
                if same or floordiv(rest.index, rest.divisor) == Index(((atom, 1),)):
                    del terms[atom], terms[rest]
                    return Index(tuple(terms.items()), const) + rest.index * factor
            elif isinstance(atom, Mod):
                quotient = floordiv(rest.index, rest.divisor)
                if atom.index == quotient:
                    del terms[atom], terms[rest]
                    joined = Index(((Mod(rest.index, rest.divisor * atom.divisor), 1),))
                    return Index(tuple(terms.items()), const) + joined * factor
    return Index(tuple((a, c) for a, c in terms.items() if c), const)


def _separate(index: Index, divisor: int) -> tuple[Index, Index, int]:
    """(high, low, d): index = high + low, d divides `divisor` and all of high, and 0 <= low < d.

    Then floor(index / divisor) is floor(high / divisor): the terms that one reshape adds up and
    another one takes apart cancel.
    """
    terms = sorted(index.terms, key=lambda term: -abs(term[1]))
    common = divisor
    for count, (_, coefficient) in enumerate(terms, 1):
        common = math.gcd(common, coefficient)
        if common == 1:
            break
        low = Index(tuple(terms[count:]), index.const % common)
        smallest, largest = low.bounds()
        if smallest >= 0 and largest < common:
            return Index(tuple(terms[:count]), index.const - low.const), low, common
    return index, ZERO, 1


def _divided(index: Index, factor: int) -> Index:
    return Index(tuple((a, c // factor) for a, c in index.terms), index.const // factor)


def floordiv(index: Index, divisor: int) -> Index:
    """index // divisor, with everything that cancels taken out."""
    if divisor == 1:
        return index
    whole: dict[Atom, int] = {}
    rest: dict[Atom, int] = {}
    for atom, coefficient in index.terms:
        quotient, remainder = divmod(coefficient, divisor)
        if remainder == 0:
            whole[atom] = quotient
        else:
            rest[atom] = coefficient
    quotient, remainder = divmod(index.const, divisor)
    inner = Index(tuple(rest.items()), remainder)
    low, high = inner.bounds()
    outer = Index(tuple(whole.items()), quotient)
    if low // divisor == high // divisor:
        return outer + low // divisor
    if low < 0:
        # Emitters divide as C does; keep the dividend nonnegative.
        shift = -(low // divisor)
        inner, outer = inner + shift * divisor, outer - shift
    inner, _, common = _separate(inner, divisor)
    if common > 1:
        return outer + floordiv(_divided(inner, common), divisor // common)
    if len(inner.terms) == 1 and inner.const == 0:
        ((atom, coefficient),) = inner.terms
        if isinstance(atom, FloorDiv) and coefficient == 1:  # (x // a) // b = x // (a * b)
            return outer + floordiv(atom.index, atom.divisor * divisor)
        if isinstance(atom, Mod) and coefficient == 1 and atom.divisor % divisor == 0:
            # (x % (a * b)) // b = (x // b) % a
            return outer + mod(floordiv(atom.index, divisor), atom.divisor // divisor)
    return outer + Index(((FloorDiv(inner, divisor), 1),))


def mod(index: Index, divisor: int) -> Index:
    """index mod divisor (never negative), with everything that cancels taken out."""
    if divisor == 1:
        return ZERO
    keep = tuple((a, c) for a, c in index.terms if c % divisor)
    inner = Index(keep, index.const % divisor)
    low, high = inner.bounds()
    if low // divisor == high // divisor:
        return inner - (low // divisor) * divisor
    if low < 0:
        inner = inner + -(low // divisor) * divisor
    above, below, common = _separate(inner, divisor)
    if common > 1:
        return mod(_divided(above, common), divisor // common) * common + below
    if len(inner.terms) == 1 and inner.const == 0:
        ((atom, coefficient),) = inner.terms
        if isinstance(atom, Mod) and coefficient == 1 and atom.divisor % divisor == 0:
            return mod(atom.index, divisor)
    return Index(((Mod(inner, divisor), 1),))


def linearize(indices: Sequence[Index], strides: Sequence[int], start: int = 0) -> Index:
    total = constant(start)
    for index, stride in zip(indices, strides, strict=True):
        total = total + index * stride
    return total


def delinearize(linear: Index, shape: Sequence[int]) -> tuple[Index, ...]:
    """The indices, one a dimension, of a row-major position in `shape`."""
    out: list[Index] = []
    for place, size in enumerate(reversed(shape)):
        if size == 1:
            out.append(ZERO)
            continue
        outermost = all(s == 1 for s in shape[: len(shape) - 1 - place])
        if not size:  # there is no element; one position stands for each of `linear`'s
            out.append(linear)
            continue
        out.append(linear if outermost else mod(linear, size))
        linear = floordiv(linear, size)
    return tuple(reversed(out))


def walk(index: Index) -> Iterator[Atom]:
    """Every atom, also inside of divisions."""
    for atom, _ in index.terms:
        yield atom
        if isinstance(atom, (FloorDiv, Mod)):
            yield from walk(atom.index)


def substitute(
    index: Index,
    axes: Mapping[Axis, Index],
    data: Callable[[Data], Data] = lambda atom: atom,
) -> Index:
    """`index` with axes replaced, and the atoms that are data mapped by `data`."""
    total = constant(index.const)
    for atom, coefficient in index.terms:
        if isinstance(atom, Axis):
            part = axes.get(atom)
            if part is None:
                part = of(atom)
        elif isinstance(atom, FloorDiv):
            part = floordiv(substitute(atom.index, axes, data), atom.divisor)
        elif isinstance(atom, Mod):
            part = mod(substitute(atom.index, axes, data), atom.divisor)
        else:
            part = Index(((data(atom), 1),))
        total = total + part * coefficient
    return total
