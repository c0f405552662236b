"""The operands of a product over windows, as kernels that lay them out, and as loads of that.

The operand of the rows becomes an image: one dimension for each window or single axis, as wide as
all the positions that are read, zeros included. A load of it is affine, so the place of an element
is a part of its row and a part of its step. The operand of the columns becomes panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ... import index as ix
from ...canonical import copied
from ...index import Atom, Axis, Data, Index
from ...kernel import (
    Apply,
    Buffer,
    Condition,
    Constant,
    Guard,
    Kernel,
    Load,
    Scalar,
    Store,
    Value,
    collect,
)
from ...structure import describe
from ..machine import CannotLower
from .roles import Product, overlaps, size


@dataclass(frozen=True)
class Window:
    """A dimension of an image: `position` runs from low to high."""

    position: Index
    low: int
    high: int

    @property
    def extent(self) -> int:
        return self.high - self.low + 1

    @property
    def axes(self) -> list[Axis]:
        return [a for a, _ in self.position.terms if isinstance(a, Axis)]

    def factor(self, index: Index) -> int:
        """How far `index` moves when the position moves by one; CannotLower if it depends on the
        position's axes in another way."""
        (axis, step), *_ = self.position.terms
        factor = index.coefficient(axis) // step
        if any(index.coefficient(a) != c * factor for a, c in self.position.terms):
            raise CannotLower("an operand that isn't read through windows alone")
        return factor


def windows(value: Value) -> list[Window]:
    """The dimensions of the image that an operand is, the slowest first."""
    loads, conditions = _places(value)
    found: dict[frozenset[object], Index] = {}
    for condition in conditions:
        terms = condition.index.terms
        if terms:
            found.setdefault(frozenset(terms), condition.index)
    taken = {a for position in found.values() for a, _ in position.terms}
    for load in loads:
        for group in overlaps(Load(load.buffer, _without(load.offset, taken), load.dtype)):
            step = math.gcd(*(load.offset.coefficient(a) for a in group))
            terms = tuple((a, load.offset.coefficient(a) // step) for a in group)
            found.setdefault(frozenset(terms), Index(terms))
        taken |= {a for a, _ in load.offset.terms}
    largest = max(loads, key=lambda load: load.buffer.size)
    made = [Window(p, *p.bounds()) for p in found.values()]
    axes = [a for w in made for a in w.axes]
    if len(set(axes)) < len(axes):
        raise CannotLower("windows that share an axis")
    return sorted(made, key=lambda w: -abs(w.factor(largest.offset)))


def _indices(value: Value) -> list[Index]:
    found: dict[int, Value] = {}
    collect(value, found)
    return [i for v in found.values() for i in v.indices()]


def _without(index: Index, axes: set[Atom]) -> Index:
    return Index(tuple((a, c) for a, c in index.terms if a not in axes), index.const)


def _places(value: Value) -> tuple[list[Load], list[Condition]]:
    found: dict[int, Value] = {}
    collect(value, found)
    loads: list[Load] = []
    conditions: list[Condition] = []
    for each in found.values():
        if not isinstance(each, (Apply, Constant, Guard, Load, Scalar)):
            raise CannotLower(f"an operand with a {type(each).__name__}")
        if not all(i.is_affine for i in each.indices()):
            raise CannotLower("an operand whose places aren't affine")
        if isinstance(each, Load):
            loads.append(each)
        elif isinstance(each, Guard):
            conditions += each.conditions
    if not loads:
        raise CannotLower("an operand without memory")
    return loads, conditions


def rewritten(value: Value, moved: Callable[[Index], Index]) -> Value:
    """`value` with every index replaced."""
    found: dict[int, Value] = {}
    collect(value, found)
    made: dict[int, Value] = {}
    for each in found.values():
        made[id(each)] = copied(each, made, moved)
    return made[id(value)]


def images(products: Sequence[Product]) -> tuple[list[Kernel], list[Load]]:
    """The kernels that make the images of the rows' operands, and loads of these in their places.

    Products that read the same image at other places share it. An operand that lies in memory as
    it should needs none.
    """
    if all(_is_image(p) for p in products):
        return [], [p.rows for p in products if isinstance(p.rows, Load)]
    found = [windows(p.rows) for p in products]
    if len({len(each) for each in found}) == 1:
        ranges = [(min(w.low for w in each), max(w.high for w in each)) for each in zip(*found)]
        wide = [[replace(w, low=a, high=b) for w, (a, b) in zip(each, ranges)] for each in found]
        made = [_image(p, each, "image") for p, each in zip(products, wide)]
        if len({describe(kernel) for kernel, _ in made}) == 1:
            return [made[0][0]], [load for _, load in made]
    made = [_image(p, each, f"image{i}") for i, (p, each) in enumerate(zip(products, found))]
    return [kernel for kernel, _ in made], [load for _, load in made]


def _is_image(product: Product) -> bool:
    rows = product.rows
    return (
        isinstance(rows, Load) and rows.offset.is_affine and rows.buffer.dtype is product.dot.dtype
    )


def _image(product: Product, found: Sequence[Window], name: str) -> tuple[Kernel, Load]:
    dtype = product.dot.dtype
    axes = [Axis(f"w{i}", w.extent) for i, w in enumerate(found)]
    strides = _strides([w.extent for w in found])
    buffer = Buffer(name, dtype, math.prod(w.extent for w in found))

    def moved(index: Index) -> Index:
        total = ix.constant(index.const)
        rest = dict(index.terms)
        for window, axis in zip(found, axes):
            factor = window.factor(index)
            for a in window.axes:
                rest.pop(a, None)
            total = total + (ix.of(axis) + window.low - window.position.const) * factor
        assert not rest, "an axis that no window has"
        return total

    offset = ix.linearize([ix.of(a) for a in axes], strides)
    store = Store(buffer, offset, rewritten(product.rows, moved))
    kernel = Kernel(name, tuple(a for a in axes if a.extent != 1), (), (store,))
    place = ix.linearize([w.position - w.low for w in found], strides)
    return kernel, Load(buffer, place, dtype)


def check_columns(product: Product) -> None:
    """CannotLower if the columns' operand can't be packed."""
    if any(isinstance(atom, Data) for i in _indices(product.columns) for atom in ix.walk(i)):
        raise CannotLower("an operand whose places are data")


def panels(product: Product, name: str, width: int) -> tuple[Kernel, Load]:
    """The kernel that packs the columns' operand in panels of `width` columns, zeros beyond the
    last one, and a load of it in its place.

    [batch, panel, step, width], the steps of the sum in row-major order.
    """
    dtype = product.dot.dtype
    count = -(-size(product.n) // width)
    panel, lane = Axis("panel", count), Axis("lane", width)
    column = ix.of(panel) * width + ix.of(lane)
    extents = [a.extent for a in product.n]
    places = ix.delinearize(column, extents)
    beyond = size(product.n) % width
    axes = dict(zip(product.n, places))
    value = rewritten(product.columns, lambda index: ix.substitute(index, axes))
    if beyond:
        zero = Constant(dtype.np.type(0), value.dtype)
        value = Guard((Condition(column, 0, size(product.n)),), value, zero, value.dtype)
    dims = [*product.batch, panel, *product.k, lane]
    strides = _strides([a.extent for a in dims])
    buffer = Buffer(name, dtype, math.prod(a.extent for a in dims))
    offset = ix.linearize([ix.of(a) for a in dims], strides)
    kernel = Kernel(
        name, tuple(a for a in dims if a.extent != 1), (), (Store(buffer, offset, value),)
    )
    flat = ix.linearize([ix.of(a) for a in product.n], _strides(extents))
    at = [ix.of(a) for a in dims]
    at[len(product.batch)], at[-1] = ix.floordiv(flat, width), ix.mod(flat, width)
    return kernel, Load(buffer, ix.linearize(at, strides), dtype)


def _strides(extents: Sequence[int]) -> list[int]:
    out, step = [], 1
    for extent in reversed(extents):
        out.append(step)
        step *= extent
    return out[::-1]
