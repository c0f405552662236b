"""Outlines: what examples of a call have in common, as data.

A builder makes the same ops of tensors of other sizes, and what differs in their attrs are sizes.
So examples of a call show what to compute for others. One example tells nothing of other sizes.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.generate import value_of

from . import indexed
from .examples import Example, Step
from .step_forms import WIDE, Shape, Untold


class Line(NamedTuple):
    """A step of an outline.

    op: what it computes; `DROPPED` to drop axes, `BIAS_GRAD` for the cotangent of a bias that has
    the size of the last axis, or `ops.constant_op`, whose attrs are (value, dtype). attrs: its
    own, with an Extent for each number that follows from sizes. dtypes, dtype: of its operands and
    of its result. places: of its operands, among those of the call and then the lines. along: see
    Step. varies: whether attrs have an Extent.
    """

    op: Op | str
    attrs: Any
    dtypes: tuple[DType, ...]
    dtype: DType
    places: tuple[int, ...]
    along: int | None = None
    varies: bool = False


DROPPED, BIAS_GRAD = "dropped", "bias grad"


class Outline(NamedTuple):
    """What examples have in common.

    arity: the number of operands. dtypes: of the results. is_single: whether the call has one
    result, and no tuple. fixed: (operand, axis, least, most) of the sizes that it tells of, where
    an attr may depend on them. equal: lists of (operand, axis) whose sizes must be equal, as
    extents name one of them. lines: in the order of computation. results: their places.
    """

    arity: int
    dtypes: tuple[DType, ...]
    is_single: bool
    fixed: tuple[tuple[int, int, int, int], ...]
    equal: tuple[tuple[tuple[int, int], ...], ...]
    lines: tuple[Line, ...]
    results: tuple[int, ...]


def outlined(examples: Sequence[Example]) -> Outline:
    """The outline of examples; Untold if they have nothing in common."""
    return _Outliner(examples).outline()


class _Outliner:
    def __init__(self, examples: Sequence[Example]):
        self._examples, self._first = examples, examples[0]
        if any(e.structure != self._first.structure for e in examples):
            raise Untold
        self._sizes = _Sizes(examples)
        self._is_fixed = len(examples) == 1  # one example tells nothing of other sizes
        self._lines: list[Line] = []

    def outline(self) -> Outline:
        first, examples = self._first, self._examples
        count = len(first.dtypes)
        columns = [list(each) for each in zip(*[e.steps for e in examples])]
        columns = [_along(_without_expands(each, examples), examples) for each in columns]
        self._places = {i: i for i in range(count)}  # in examples -> in the outline
        for place in _needed(columns, first):
            self._lines.append(self._line(columns[place - count]))
            self._places[place] = len(self._places)
        results = tuple([self._places[p] for p in first.results])
        fixed = self._fixed() if self._is_fixed else ()
        dtypes = tuple(first.result_dtypes)
        equal, lines = self._sizes.once(self._lines)
        return Outline(count, dtypes, first.is_single, fixed, equal, lines, results)

    def _line(self, steps: Sequence[Step]) -> Line:
        """The line of a step of all examples."""
        first, examples, count = steps[0], self._examples, len(self._first.dtypes)
        known = self._first
        dtypes = tuple(
            [known.dtypes[p] if p < count else known.steps[p - count].dtype for p in first.places]
        )
        if first.op is ops.constant_op:
            return self._constant([s.attrs for s in steps], first.dtype)
        places = tuple([self._places[p] for p in first.places])
        dropped = _dropped(steps, examples)
        if dropped is not None:
            return Line(DROPPED, dropped, dtypes, first.dtype, places)
        if first.op is ops.linear_bias_grad and _is_of_rows(steps, examples):
            return Line(BIAS_GRAD, (), dtypes, first.dtype, places)
        attrs = tuple([_merged(each, self._sizes) for each in zip(*[s.attrs for s in steps])])
        if _is_sized(first.op):
            self._is_fixed = True
        varies = _has_extents(attrs)
        return Line(first.op, attrs, dtypes, first.dtype, places, first.along, varies)

    def _constant(self, attrs: Sequence[Any], dtype: DType) -> Line:
        values = [np.asarray(value_of(*a)) for a in attrs]
        first = values[0]
        if all(v.tobytes() == first.tobytes() for v in values):
            if first.tobytes().strip(b"\0") and first != 1 and np.isfinite(first):
                self._is_fixed = True
            return Line(ops.constant_op, (first,), (), dtype, ())
        made = first.dtype
        if made.kind not in "iuf":
            raise Untold
        if made.kind == "f":
            extent = self._sizes.extent([float(v) for v in values], made)
        else:
            extent = self._sizes.extent([int(v) for v in values])
        return Line(ops.constant_op, (extent,), (), dtype, (), varies=True)

    def _fixed(self) -> tuple[tuple[int, int, int, int], ...]:
        """The sizes that examples have hardly changed. A part of them, rounded to a whole number,
        may be equal in all examples."""
        found = []
        for i, shapes in enumerate(zip(*[e.shapes for e in self._examples])):
            for axis, sizes in enumerate(zip(*shapes)):
                least, most = min(sizes), max(sizes)
                if least > 1 and most < 2 * least:
                    found.append((i, axis, least, most))
        return tuple(found)


# ---- sizes among attrs -----------------------------------------------------------------------


_HEADS = (2, 3, 4, 6, 8, 12, 16, 32)


def _part(count: int, n: int) -> int:
    """n divided by the number of heads."""
    if n % count:
        raise Untold
    return n // count


_INTEGERS: tuple[Callable[[int], int], ...] = (
    lambda n: n - 1,
    lambda n: n + 1,
    *[functools.partial(operator.mul, count) for count in range(1, 9)],
    *[functools.partial(_part, count) for count in _HEADS],
)
_FLOATS: tuple[Callable[[int], float], ...] = (
    float, lambda n: n - 1.0, lambda n: 1 / n, lambda n: n / (n - 1), lambda n: 1 / math.sqrt(n),
    *[lambda n, count=count: 1 / math.sqrt(_part(count, n)) for count in _HEADS],
)  # fmt: skip
"""What builders compute of sizes: counts, parts of one memory and of heads, means, unbiased
variances, scales of attention."""


_WAYS: tuple[Callable[[int], Any], ...] = (*_INTEGERS, *_FLOATS)
_OF_INTEGERS, _OF_FLOATS = range(len(_INTEGERS)), range(len(_INTEGERS), len(_WAYS))


Way = tuple[int, int, tuple[int, ...]]
"""A function of the product of some sizes of operand i: (number of the function, i, axes)."""


class Parts(dict[Way, Any]):
    """What ways give for operands of these shapes, by their places, each computed once."""

    def __init__(self, shapes: Sequence[Shape] | Mapping[int, Shape]):
        self._shapes = shapes

    def __missing__(self, way: Way) -> Any:
        function, i, axes = way
        shape = self._shapes[i]
        found = self[way] = _WAYS[function](math.prod([shape[a] for a in axes]))
        return found


class Extent(NamedTuple):
    """A number that follows from the operands' shapes. ways: all that the examples allow."""

    ways: tuple[Way, ...]

    def value(self, parts: Parts) -> Any:
        try:
            first, *others = [parts[way] for way in self.ways]
        except ZeroDivisionError:
            raise Untold from None
        for other in others:
            if other != first:  # the examples were too few to tell
                raise Untold
        return first


class _Sizes:
    """The numbers that follow from the operands' shapes in examples."""

    def __init__(self, examples: Sequence[Example]):
        self._shapes = [e.shapes for e in examples]
        self._ways: dict[Any, dict[tuple[Any, ...], list[Any]]] = {}

    def extent(self, values: Sequence[Any], dtype: np.dtype[Any] | None = None) -> Extent:
        """What is these values in the examples, which are of `dtype` if it is a floating one."""
        kind = dtype or values[0].__class__
        table = self._ways.get(kind)
        if table is None:
            table = self._ways[kind] = self._table(kind)
        ways = table.get(tuple(values))
        if ways is None:
            raise Untold
        return Extent(tuple(ways))

    def _table(self, kind: Any) -> dict[tuple[Any, ...], list[Any]]:
        """Values in the examples -> all that is these."""
        table: dict[tuple[Any, ...], list[Any]] = {}
        for i, shape in enumerate(self._shapes[0]):
            for axes in _axes(len(shape)):
                counts = [math.prod([shapes[i][a] for a in axes]) for shapes in self._shapes]
                for number in _OF_INTEGERS if kind is int else _OF_FLOATS:
                    try:
                        found = [_WAYS[number](n) for n in counts]
                    except (ZeroDivisionError, Untold):
                        continue
                    if isinstance(kind, np.dtype):
                        found = [float(kind.type(v)) for v in found]
                    table.setdefault(tuple(found), []).append((number, i, axes))
        return table

    def once(
        self, lines: Sequence[Line]
    ) -> tuple[tuple[tuple[tuple[int, int], ...], ...], tuple[Line, ...]]:
        """The lines with one way of those that differ in the operand whose size they take, and
        (operand, axis) of the sizes that are therefore to be equal."""
        alike: dict[Any, dict[tuple[int, int], None]] = {}
        of: dict[tuple[int, int], Any] = {}  # (operand, axis) -> its sizes in the examples
        for i, shape in enumerate(self._shapes[0]):
            for axis in range(len(shape)):
                of[i, axis] = tuple([shapes[i][axis] for shapes in self._shapes])

        def narrowed(attr: Any) -> Any:
            if attr.__class__ is tuple:
                return tuple([narrowed(each) for each in attr])
            if attr.__class__ is not Extent:
                return attr
            kept: dict[Any, Way] = {}
            for way in attr.ways:
                function, i, axes = way
                key = function, tuple(sorted([of[i, a] for a in axes]))
                if kept.setdefault(key, way) is not way:
                    for j, a in [(i, a) for a in axes] + [(kept[key][1], a) for a in kept[key][2]]:
                        alike.setdefault(of[j, a], {})[j, a] = None
            return Extent(tuple(kept.values()))

        found = [
            line._replace(attrs=narrowed(line.attrs)) if line.varies else line for line in lines
        ]
        return tuple([tuple(each) for each in alike.values() if len(each) > 1]), tuple(found)


@functools.cache
def _axes(rank: int) -> list[tuple[int, ...]]:
    """The axes whose sizes builders multiply: neighbours, and all but one."""
    every = tuple(range(rank))
    found = [every[a:b] for a in range(rank) for b in range(a + 1, rank + 1)]
    return list(dict.fromkeys([*found, *[every[:a] + every[a + 1 :] for a in range(1, rank - 1)]]))


def _merged(attrs: Sequence[Any], sizes: _Sizes) -> Any:
    """One attr of all examples, with extents where they differ."""
    first = attrs[0]
    if all([a == first and a.__class__ is first.__class__ for a in attrs]):
        return first
    if all([isinstance(a, tuple) and len(a) == len(first) for a in attrs]):
        return tuple([_merged(each, sizes) for each in zip(*attrs)])
    if first.__class__ in (int, float) and all([a.__class__ is first.__class__ for a in attrs]):
        return sizes.extent(attrs)
    raise Untold


def _has_extents(attr: Any) -> bool:
    if attr.__class__ is tuple:
        return any(map(_has_extents, attr))
    return attr.__class__ is Extent


def filled(attr: Any, parts: Parts) -> Any:
    """An attr for operands of the shapes of `parts`."""
    if attr.__class__ is tuple:
        return tuple([filled(each, parts) for each in attr])
    return attr.value(parts) if attr.__class__ is Extent else attr


_OF_SIZES = {
    "count", "divisor", "kernel", "offset", "rows", "scale", "shape", "size", "sizes", "starts",
    "stops",
}  # fmt: skip
"""Names of attrs that may come from sizes also where all examples agree."""


def _is_sized(op: Op) -> bool:
    return op is ops.pad_op or op is ops.constant_op or not _OF_SIZES.isdisjoint(op.params)


# ---- steps of all examples -------------------------------------------------------------------


def _is_of_rows(steps: Sequence[Step], examples: Sequence[Example]) -> bool:
    """Whether the cotangent of a bias has the size of the last axis."""
    count = len(examples[0].dtypes)
    for step, example in zip(steps, examples):
        (place,) = step.places
        shape = example.shapes[place] if place < count else example.steps[place - count].shape
        if len(shape) < 2 or tuple(step.attrs[0]) != shape[-1:] or step.dtype not in WIDE:
            return False
    return True


def _without_expands(steps: list[Step], examples: Sequence[Example]) -> list[Step]:
    """An elementwise op in all examples, on operands before they were expanded if another operand
    has the result's shape anyway."""
    if steps[0].op.kind is not Kind.ELEMENTWISE:
        return steps
    count = len(examples[0].dtypes)

    def source(example: Example, place: int) -> int:
        while place >= count and example.steps[place - count].op is ops.expand_op:
            (place,) = example.steps[place - count].places
        return place

    def shape(example: Example, place: int) -> Shape:
        return example.shapes[place] if place < count else example.steps[place - count].shape

    places = tuple([source(examples[0], p) for p in steps[0].places])
    rows = list(zip(examples, steps))
    if any(all(shape(e, p) == s.shape for e, s in rows) for p in places):
        return [Step(s.op, s.attrs, s.dtype, s.shape, places) for s in steps]
    return steps


def _along(steps: list[Step], examples: Sequence[Example]) -> list[Step]:
    """A gather or scatter in all examples, without the positions that follow from the place, as
    those of `torch.gather` in all dimensions but one. Its form checks those that are left."""
    first, count = steps[0], len(examples[0].dtypes)
    if first.op is not ops.gather and first.op is not ops.scatter:
        return steps
    before, places = (
        (first.places[:1], first.places[1:])
        if first.op is ops.gather
        else (first.places[:2], first.places[2:])
    )
    rank = len(places)
    if not 1 < rank <= indexed.DIMENSIONS or first.attrs[0] != 0:
        return steps

    def shape(example: Example, place: int) -> Shape:
        return example.shapes[place] if place < count else example.steps[place - count].shape

    def counts(example: Example, number: int) -> bool:
        """Whether the positions in a dimension are 0, 1, … along it."""
        place = places[number] - count
        if place < 0 or example.steps[place].op is not ops.reshape_op:
            return False
        inner, made = example.steps[place].places[0] - count, example.steps[place].shape
        is_count = inner >= 0 and example.steps[inner].op is ops.iota
        return is_count and len(made) == rank and made[number] == math.prod(made)

    left = [i for i in range(rank) if not all(counts(e, i) for e in examples)]
    if len(left) != 1:
        return steps
    (at,) = left
    for example in examples:
        table, index = shape(example, first.places[0]), shape(example, places[at])
        if len(table) != rank or len(index) != rank:
            return steps
        if any(index[i] != shape(example, p)[i] for i, p in enumerate(places) if i != at):
            return steps
    place = places[at]
    if place >= count and examples[0].steps[place - count].op is ops.check:
        said = [(e.steps[place - count].attrs[0], shape(e, first.places[0])[at]) for e in examples]
        if all(size == of for size, of in said):
            (place,) = examples[0].steps[place - count].places
    return [Step(s.op, s.attrs, s.dtype, s.shape, (*before, place), at) for s in steps]


def _needed(columns: Sequence[Sequence[Step]], example: Example) -> list[int]:
    """The places of the steps that the results need, in order."""
    count, needed, stack = len(example.dtypes), set(), list(example.results)
    while stack:
        place = stack.pop()
        if place >= count and place not in needed:
            needed.add(place)
            stack.extend(columns[place - count][0].places)
    return sorted(needed)


def _dropped(steps: Sequence[Step], examples: Sequence[Example]) -> tuple[int, ...] | None:
    """The axes of a fold that a reshape of it drops; None for other steps."""
    if steps[0].op is not ops.reshape_op:
        return None
    place = steps[0].places[0] - len(examples[0].dtypes)
    if place < 0 or examples[0].steps[place].op.kind is not Kind.REDUCE:
        return None
    axes = tuple(examples[0].steps[place].attrs[0])
    for step, example in zip(steps, examples):
        folded = example.steps[place].shape
        if step.shape != tuple([n for i, n in enumerate(folded) if i not in axes]):
            return None
    return axes
