"""The iteration space of a group of nodes, and where a node's elements lie in it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tilewright.ir.shape import contiguous_strides

from . import index as ix
from .index import Axis, Index

Place = tuple[Index, ...]
"""One index for each dimension of a node."""


@dataclass(frozen=True)
class Domain:
    """A loop over the positions of `shape`; its dimensions `reduced` are the reduction axes.

    A node with as many elements as `shape` is "full" level: it has one element for each point. A
    node with as many elements as the dimensions that are not reduced is "row" level. Elements and
    points are matched in row-major order, so a reshape changes nothing.

    crossed: the dimensions that folds down the columns of the rows reduce, if such folds belong to
    it too. All dimensions that aren't reduced are in front. Those in front of `crossed` number the
    parts in which columns are folded, each by itself, and a node with as many elements as there are
    columns in all parts has one for each of these. A part doesn't have as many rows as columns.

    columns: the innermost dimensions of a contraction's points, if its rows are folded. Then a node
    with one element for each of the other points is row level. See `folding`.
    """

    shape: tuple[int, ...]
    reduced: tuple[int, ...] = ()
    crossed: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()

    @cached_property
    def axes(self) -> tuple[Axis, ...]:
        """One axis for each dimension. Named by place alone, so domains of one shape share them."""
        return tuple(Axis(f"d{i}", extent) for i, extent in enumerate(self.shape))

    @cached_property
    def parallel(self) -> tuple[Axis, ...]:
        return tuple(a for i, a in enumerate(self.axes) if i not in self.reduced and a.extent != 1)

    @cached_property
    def reduction(self) -> tuple[Axis, ...]:
        return tuple(a for i, a in enumerate(self.axes) if i in self.reduced and a.extent != 1)

    @cached_property
    def across(self) -> tuple[Axis, ...]:
        """The axes of `columns`."""
        return tuple(a for i, a in enumerate(self.axes) if i in self.columns and a.extent != 1)

    @cached_property
    def walked(self) -> tuple[Axis, ...]:
        """The axes of `crossed`."""
        return tuple(a for i, a in enumerate(self.axes) if i in self.crossed and a.extent != 1)

    @cached_property
    def parts(self) -> tuple[Axis, ...]:
        """The parallel axes that aren't among `crossed`."""
        return tuple(a for a in self.parallel if a not in self.walked)

    @cached_property
    def down(self) -> tuple[Axis, ...]:
        """The parallel axes that aren't among `columns`."""
        return tuple(a for a in self.parallel if a not in self.across)

    @cached_property
    def points(self) -> int:
        """The number of rows."""
        return math.prod(a.extent for a in self.parallel)

    @cached_property
    def lines(self) -> int:
        """The number of points, without those along `columns`."""
        return math.prod(a.extent for a in self.down)

    @cached_property
    def row(self) -> int:
        """The number of elements of a row."""
        return math.prod(a.extent for a in self.reduction)

    @cached_property
    def _across(self) -> int:
        """The number of columns of all parts."""
        return self.row * math.prod(a.extent for a in self.parts)

    @cached_property
    def _full(self) -> Place:
        return tuple(map(ix.of, self.axes))

    def ends_with(self, axes: Sequence[Axis]) -> bool:
        """Whether these axes are the innermost ones."""
        inner = [a for a in self.axes if a.extent != 1][-len(axes) :]
        return bool(axes) and inner == list(axes)

    def holds(self, elements: int) -> bool:
        """Whether a node with so many elements is full or row level, or has one for each column."""
        if self.crossed and elements == self._across:
            return True
        return elements in (self.points, self.lines, self.points * self.row)

    def place(self, shape: Sequence[int]) -> Place | None:
        """The element of a node of this shape that belongs to a point."""
        elements = math.prod(shape)
        if elements == self.points:
            return along(self.parallel, shape)
        if self.columns and elements == self.lines:
            return along(self.down, shape)
        if self.crossed and elements == self._across:
            return along((*self.parts, *self.reduction), shape)
        if elements != self.points * self.row:
            return None
        if shape == self.shape:
            return self._full
        return along([a for a in self.axes if a.extent != 1], shape)

    def row_place(self, extents: Sequence[int]) -> Place | None:
        """The positions along reduced dimensions of these extents that belong to a point."""
        if math.prod(extents) != self.row:
            return None
        return along(self.reduction, extents)

    def folded(self, count: int) -> tuple[Axis, ...]:
        """The axes of a fold over `count` elements; none if such a fold doesn't belong here."""
        if self.columns:
            return self.across if self.lines * count == self.points else ()
        if count == self.row:
            return self.reduction
        return self.walked if count == math.prod(a.extent for a in self.walked) else ()

    def beside(self, over: tuple[Axis, ...]) -> frozenset[Axis]:
        """The axes that the results of a fold over `over` range over."""
        whole = self.parallel if self.columns else (*self.parallel, *self.reduction)
        return frozenset(whole).difference(over)

    def folding(self, count: int) -> Domain | None:
        """This domain of a contraction with its `count` innermost points as columns; None if it
        can't be cut there."""
        shape, columns = [*self.shape], list[int]()
        place = len(shape) - len(self.reduced)
        while count > 1 and place > 0:
            place -= 1
            extent = shape[place]
            if extent % count == 0 and extent > count:
                shape[place : place + 1] = [extent // count, count]
                columns = [place + 1, *(c + 1 for c in columns)]
                count = 1
            elif count % extent == 0:
                columns.insert(0, place)
                count //= extent
            else:
                return None
        if count > 1:
            return None
        reduced = tuple(range(len(shape) - len(self.reduced), len(shape)))
        return Domain(tuple(shape), reduced, columns=tuple(columns))


def along(axes: Sequence[Axis], shape: Sequence[int]) -> Place:
    """The place in `shape` that corresponds, in row-major order, to a point of `axes`."""
    sizes = [s for s in shape if s != 1]
    if sizes == [a.extent for a in axes]:
        rest = iter(axes)
        return tuple(ix.ZERO if s == 1 else ix.of(next(rest)) for s in shape)
    strides = contiguous_strides([a.extent for a in axes])
    return ix.delinearize(ix.linearize([ix.of(a) for a in axes], strides), shape)
