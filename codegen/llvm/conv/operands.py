"""The operands of a product over windows: kernels that lay them out, and loads of the result.

The operand of the rows becomes an image: one dimension for each window or single axis, as wide as
all positions that are read, zeros included. A load of the image is affine, so the place of an
element is the sum of a part of its row and a part of its step. The operand of the columns becomes
panels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

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
from ...kernel import index as ix
from ...kernel.canonical import collapsed, copied
from ...kernel.index import Atom, Axis, Data, Index
from ...kernel.structure import describe
from ..machine import CannotLower
from .roles import Product, overlaps, size


@dataclass(frozen=True)
class Window:
    """A dimension of an image: `position` runs from low to high; outside of first to last, the
    image is zero."""

    position: Index
    low: int
    high: int
    first: int
    last: int

    @property
    def extent(self) -> int:
        return self.high - self.low + 1

    @property
    def inside(self) -> int:
        """The extent without the border."""
        return self.last - self.first + 1

    @property
    def axes(self) -> list[Axis]:
        return [a for a, _ in self.position.terms if isinstance(a, Axis)]

    def factor(self, index: Index) -> int:
        """The distance that `index` moves when the position moves by one. CannotLower if it depends
        on the position's axes in another way."""
        (axis, step), *_ = self.position.terms
        factor = index.coefficient(axis) // step
        if any(index.coefficient(a) != c * factor for a, c in self.position.terms):
            raise CannotLower("an operand that isn't read through windows alone")
        return factor


def windows(value: Value) -> list[Window]:
    """The dimensions of an operand's image, the slowest first."""
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
    borders = _borders(value)
    made = []
    for position in found.values():
        low, high = position.bounds()
        inside = [c for c in borders if c.index == position]
        first, last = (
            max([low, *(c.low for c in inside)]),
            min([high, *(c.high - 1 for c in inside)]),
        )
        made.append(Window(position, low, high, first, last))
    axes = [a for w in made for a in w.axes]
    if len(set(axes)) < len(axes):
        raise CannotLower("windows that share an axis")
    largest = max(loads, key=lambda load: load.buffer.size)
    return sorted(made, key=lambda w: -abs(w.factor(largest.offset)))


def _borders(value: Value) -> tuple[Condition, ...]:
    """The conditions outside of which an operand is zero."""
    if isinstance(value, Guard) and isinstance(value.outside, Constant):
        zero = value.outside.value
        if zero == 0 and not np.signbit(zero):
            return value.conditions
    return ()


def inside_of(value: Value) -> Value:
    """An operand as it is where it isn't zero because of a border."""
    return value.inside if isinstance(value, Guard) and _borders(value) else value


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


def moved(index: Index, found: Sequence[Window], axes: Sequence[Axis]) -> Index:
    """`index` with an axis for each window, along its inside, in the place of the window's axes."""
    total = _without(index, {a for window in found for a in window.axes})
    for window, axis in zip(found, axes):
        place = ix.of(axis) + window.first - window.position.const
        total = total + place * window.factor(index)
    return total


def images(products: Sequence[Product]) -> tuple[list[Kernel], list[Load]]:
    """The kernels that make the images of the rows' operands, and loads of these in their places.

    Products that read the same image at other places share it. An operand that already lies in
    memory like an image needs no kernel.
    """
    if all(_is_image(p) for p in products):
        return [], [p.rows for p in products if isinstance(p.rows, Load)]
    found = [windows(p.rows) for p in products]
    if len({len(each) for each in found}) == 1:
        wide = [[_reaching(w, same) for w, same in zip(each, zip(*found))] for each in found]
        made = [_image(p, each, "image") for p, each in zip(products, wide)]
        if len({tuple(map(describe, kernels)) for kernels, _ in made}) == 1:
            return made[0][0], [load for _, load in made]
    made = [_image(p, each, f"image{i}") for i, (p, each) in enumerate(zip(products, found))]
    return [kernel for kernels, _ in made for kernel in kernels], [load for _, load in made]


def _reaching(window: Window, same: Sequence[Window]) -> Window:
    """A window over the positions of several ones."""
    low, high = min(w.low for w in same), max(w.high for w in same)
    first, last = min(w.first for w in same), max(w.last for w in same)
    return replace(window, low=low, high=high, first=first, last=last)


def _is_image(product: Product) -> bool:
    rows = product.rows
    return (
        isinstance(rows, Load) and rows.offset.is_affine and rows.buffer.dtype is product.dot.dtype
    )


def _image(product: Product, found: Sequence[Window], name: str) -> tuple[list[Kernel], Load]:
    """The kernels that fill an image: one for its inside, and one for the border in each dimension.

    The border behind one row in memory and the border before the next one are set to zero as one
    piece. So there is room for such a piece before the image and behind it.
    """
    dtype, value = product.dot.dtype, product.rows
    strides = strides_of([w.extent for w in found])
    bordered = all(w.inside > 0 for w in found) and _borders(value) != ()
    if bordered:
        value = inside_of(value)
    else:
        found = [replace(w, first=w.low, last=w.high) for w in found]
    before = max(((w.high - w.last) * step for w, step in zip(found, strides)), default=0)
    behind = max(((w.first - w.low) * step for w, step in zip(found, strides)), default=0)
    size_ = before + math.prod(w.extent for w in found) + behind
    buffer = Buffer(name, dtype, size_)
    axes = [Axis(f"w{i}", w.inside) for i, w in enumerate(found)]

    places = [ix.of(a) + (w.first - w.low) for a, w in zip(axes, found)]
    offset = ix.linearize(places, strides, before)
    stores = (Store(buffer, offset, rewritten(value, lambda index: moved(index, found, axes))),)
    kernels = [Kernel(name, tuple(a for a in axes if a.extent != 1), (), stores)]
    for i, (window, step) in enumerate(zip(found, strides)):
        length = (window.extent - window.inside) * step
        if length:
            count = math.prod(w.extent for w in found[:i])
            row, place = Axis("row", count + 1), Axis("place", length)
            pitch = window.extent * step
            start = before - (window.high - window.last) * step
            offset = ix.of(row) * pitch + ix.of(place) + start
            zero = Constant(dtype.np.type(0), dtype)
            parallel = tuple(a for a in (row, place) if a.extent != 1)
            border = Kernel(f"{name}_border{i}", parallel, (), (Store(buffer, offset, zero),))
            kernels.append(border)
    place_ = ix.linearize([w.position - w.low for w in found], strides, before)
    return [collapsed(k, [k.parallel]) for k in kernels], Load(buffer, place_, dtype)


def check_columns(product: Product) -> None:
    """CannotLower if the columns' operand can't be packed."""
    if any(isinstance(atom, Data) for i in _indices(product.columns) for atom in ix.walk(i)):
        raise CannotLower("an operand whose places are data")


def panels(product: Product, name: str, width: int) -> tuple[Kernel, Load]:
    """The kernel that packs the columns' operand, and a load of the result in its place.

    The panels are [batch, panel, step, width], with the steps of the sum in row-major order; beyond
    the last column they are zero.
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
    strides = strides_of([a.extent for a in dims])
    buffer = Buffer(name, dtype, math.prod(a.extent for a in dims))
    offset = ix.linearize([ix.of(a) for a in dims], strides)
    parallel = tuple(a for a in dims if a.extent != 1)
    kernel = Kernel(name, parallel, (), (Store(buffer, offset, value),))
    flat = ix.linearize([ix.of(a) for a in product.n], strides_of(extents))
    at = [ix.of(a) for a in dims]
    at[len(product.batch)], at[-1] = ix.floordiv(flat, width), ix.mod(flat, width)
    within = [a for a in parallel if a is not lane]
    return collapsed(kernel, [within]), Load(buffer, ix.linearize(at, strides), dtype)


def strides_of(extents: Sequence[int]) -> list[int]:
    out, step = [], 1
    for extent in reversed(extents):
        out.append(step)
        step *= extent
    return out[::-1]
