"""The dimensions of the arrays a kernel computes with, and indices rewritten to them.

A value that ranges over axes S is an array with one dimension for each axis of the domain, of size
1 where the value does not range over the axis. At first the domain has the kernel's axes. A
Relation replaces axes that occur together: a*i + b*j + ... = start + step * fresh. With it a
guarded value is computed over its valid part only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from ..kernel.index import Axis, Data, FloorDiv, Index, Mod, constant, floordiv, mod, of


class NotExpressible(Exception):
    """An index depends on axes in another way than their relation allows."""


@dataclass(frozen=True)
class Relation:
    """The sum of coefficient * axis over `direction` is start + step * fresh."""

    direction: Mapping[Axis, int]
    fresh: Axis
    start: int = 0
    step: int = 1

    def factor(self, coefficients: Mapping[Axis, int]) -> int:
        """f such that the coefficients of the axes replaced are f * direction."""
        first = next(iter(self.direction))
        quotient, rest = divmod(coefficients.get(first, 0), self.direction[first])
        if rest or any(coefficients.get(a, 0) != quotient * c for a, c in self.direction.items()):
            raise NotExpressible
        return quotient


def rewrite(index: Index, relations: tuple[Relation, ...]) -> Index:
    """`index` in terms of the fresh axes; NotExpressible if it can't be."""
    if not relations:
        return index
    coefficients = {a: c for a, c in index.terms if isinstance(a, Axis)}
    replaced = {a for r in relations for a in r.direction}
    total = constant(index.const)
    for relation in relations:
        factor = relation.factor(coefficients)
        if factor:
            total = total + (of(relation.fresh) * relation.step + relation.start) * factor
    for atom, coefficient in index.terms:
        if isinstance(atom, Axis):
            if atom in replaced:
                continue
            part = of(atom)
        elif isinstance(atom, FloorDiv):
            part = floordiv(rewrite(atom.index, relations), atom.divisor)
        elif isinstance(atom, Mod):
            part = mod(rewrite(atom.index, relations), atom.divisor)
        else:
            part = Index(((atom, 1),))
        total = total + part * coefficient
    return total


@dataclass(eq=False)
class Domain:
    """Axes, one for each dimension, and the way to express the kernel's indices by them.

    origin: for each axis of the kernel, the dimension of this axis or of the one that replaced it.
    """

    axes: tuple[Axis, ...]
    origin: dict[Axis, int]
    steps: tuple[tuple[Relation, ...], ...] = ()
    _known: dict[Index, Index] = field(default_factory=dict)

    @property
    def rank(self) -> int:
        return len(self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(a.extent for a in self.axes)

    def rewrite(self, index: Index) -> Index:
        found = self._known.get(index)
        if found is None:
            found = index
            for relations in self.steps:
                found = rewrite(found, relations)
            self._known[index] = found
        return found

    def dimensions(self, index: Index) -> set[int]:
        """The dimensions along which an index of this domain varies, apart from its data."""
        found: set[int] = set()
        for atom, _ in index.terms:
            if isinstance(atom, Axis):
                found.add(self.axes.index(atom))
            elif isinstance(atom, (FloorDiv, Mod)):
                found |= self.dimensions(atom.index)
        return found

    def related(self, relations: tuple[Relation, ...]) -> Domain:
        """The domain with relations; a fresh axis takes the place of the first axis that it
        replaces."""
        axes = list(self.axes)
        moved: dict[int, int] = {}
        for relation in relations:
            places = [self.axes.index(a) for a in relation.direction]
            for place in places:
                moved[place] = places[0]
                axes[place] = Axis(f"{self.axes[place].name}_", 1)
            axes[places[0]] = relation.fresh
        origin = {a: moved.get(p, p) for a, p in self.origin.items()}
        return Domain(tuple(axes), origin, (*self.steps, relations))


def tabulate(index: Index, domain: Domain) -> np.ndarray:
    """The values of an index without data, an int64 array that broadcasts over the domain."""
    total: np.ndarray = np.full((1,) * domain.rank, index.const, dtype=np.int64)
    for atom, coefficient in index.terms:
        if isinstance(atom, Axis):
            shape = [1] * domain.rank
            shape[domain.axes.index(atom)] = atom.extent
            part = np.arange(atom.extent, dtype=np.int64).reshape(shape)
        else:
            assert not isinstance(atom, Data), "data has no table"
            inner = tabulate(atom.index, domain)
            divided = isinstance(atom, FloorDiv)
            part = inner // atom.divisor if divided else inner % atom.divisor
        total = total + part * coefficient
    return total


def has_data(index: Index) -> bool:
    return any(
        isinstance(a, Data) or (not isinstance(a, Axis) and has_data(a.index))
        for a, _ in index.terms
    )
