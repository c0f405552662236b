"""Templates: what a call computes, for operands of any sizes, learned from examples.

A builder makes the same ops of tensors of other sizes, and what differs in their attrs are sizes.
So examples of a call, which are the ops for some sizes each, show what to compute for others. A
template runs the same forms as a program, in the same order, so it has the same bits.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT8, DType
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.generate import value_of
from tilewright.ir.ops.marker import MARKERS
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.passes.legalize import widen_long_sums

from . import composites, indexed, scans
from .bound import SHARED, Bound, composed
from .forms import Form
from .program import CELLS, MOST_SCORES, scores_of
from .quiet import quietly
from .step_forms import (
    VIEWS,
    WIDE,
    Shape,
    Shared,
    Staged,
    Untold,
    bias_grad,
    direct,
    is_bare,
    sized,
)


@dataclass
class Step:
    """An op in an example. places: of its operands among those of the call and the steps. along: of
    a gather or scatter the dimension whose positions are its last operand, if it has no others:
    the rest are those of the place itself."""

    op: Op
    attrs: tuple[Any, ...]
    dtype: DType
    shape: Shape
    places: tuple[int, ...]
    along: int | None = None


class Example:
    """The ops that a call consists of, for operands of these shapes.

    shapes, dtypes: of the operands; after their shapes come `sizes`, which are arguments of the
    call. steps: in the order of computation. results: places of the results. is_single: whether
    the call has one result, and no tuple.
    """

    def __init__(self, operands: Sequence[Node], made: Any, sizes: Sequence[Shape] = ()):
        self.shapes = [*[tuple(o.shape) for o in operands], *sizes]
        self.dtypes = [o.dtype for o in operands]
        self.steps: list[Step] = []
        self.is_single = made.__class__ is Node
        self._places = {node: i for i, node in enumerate(operands)}
        roots: Sequence[Node] = (made,) if self.is_single else made
        self._add(roots)
        self.results = [self._places[r] for r in roots]
        self.result_dtypes = [r.dtype for r in roots]
        del self._places

    def _add(self, roots: Sequence[Node]) -> None:
        places = self._places
        for node in _in_order(roots, places):
            if node.op in MARKERS:
                places[node] = places[node.operands[MARKERS[node.op]]]
                continue
            if _is_formula(node):
                inner = decomposed(node)
                self._add((inner,))
                places[node] = places[inner]
                continue
            _refuse(node)
            at = tuple([places[o] for o in node.operands])
            places[node] = len(self.dtypes) + len(self.steps)
            self.steps.append(Step(node.op, node.attrs, node.dtype, tuple(node.shape), at))

    @property
    def structure(self) -> Any:
        """What examples of one template have in common."""
        steps = [(s.op, s.dtype, s.places, len(s.shape)) for s in self.steps]
        return steps, self.results, self.result_dtypes


def _in_order(roots: Sequence[Node], stops: Container[Node]) -> list[Node]:
    """The nodes above `stops`, each after its operands. The order depends on the graph alone, and
    not on what was recorded before."""
    order: dict[Node, None] = {}

    def visit(node: Node) -> None:
        if node not in stops and node not in order:
            for operand in node.operands:
                visit(operand)
            order[node] = None

    for root in roots:
        visit(root)
    return list(order)


_KINDS = {
    Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCE, Kind.CONTRACTION, Kind.GATHER, Kind.SCATTER,
    Kind.CHECK, Kind.SCAN, Kind.CONSTANT, Kind.COMPOSITE, Kind.ATTENTION, Kind.LOOP,
}  # fmt: skip


def _refuse(node: Node) -> None:
    """Raise Untold for a node that isn't computed by a form of its own."""
    op = node.op
    if (op.kind not in _KINDS and op is not ops.iota and op not in ops.DRAWS) or any(
        d in FLOAT8 for d in (node.dtype, *_dtypes(node))
    ):
        raise Untold
    if op.wide and not scans.has_form(node) and widen_long_sums(node) is not None:
        raise Untold
    if op.kind is Kind.ATTENTION and (scores_of(node) > MOST_SCORES or not _is_ready(node)):
        raise Untold


def _is_formula(node: Node) -> bool:
    """Whether a composite is computed as the ops that it consists of."""
    op = node.op
    return (
        op.kind in (Kind.COMPOSITE, Kind.ATTENTION)
        and op.decompose is not None
        and op.numpy is None
        and not _is_ready(node)
    )


def _dtypes(node: Node) -> tuple[DType, ...]:
    return tuple([o.dtype for o in node.operands])


def _is_ready(node: Node) -> bool:
    if node.op in CELLS:
        return node.dtype in WIDE
    return composites.parts_of(node) is not None or composites.form_of(node) is not None


# ---- sizes among attrs -----------------------------------------------------------------------


_INTEGERS: tuple[Callable[[int], int], ...] = (
    lambda n: n - 1,
    lambda n: n + 1,
    *[functools.partial(operator.mul, count) for count in range(1, 9)],
)
_FLOATS: tuple[Callable[[int], float], ...] = (
    float, lambda n: n - 1.0, lambda n: 1 / n, lambda n: n / (n - 1), lambda n: 1 / math.sqrt(n),
)  # fmt: skip
"""What builders compute of sizes: counts, parts of one memory, means, unbiased variances, scales of
attention."""


class _Extent:
    """A number that follows from the operands' shapes: a function of the product of some sizes of
    operand i. ways: all (function, i, axes) that the examples allow."""

    def __init__(self, ways: Sequence[tuple[Callable[[int], Any], int, tuple[int, ...]]]):
        self.ways = ways

    def value(self, shapes: Sequence[Shape]) -> Any:
        try:
            found = {f(math.prod([shapes[i][a] for a in axes])) for f, i, axes in self.ways}
        except ZeroDivisionError:
            raise Untold from None
        if len(found) > 1:  # the examples were too few to tell
            raise Untold
        return found.pop()


class _Sizes:
    """The numbers that follow from the operands' shapes in examples."""

    def __init__(self, examples: Sequence[Example]):
        self._shapes = [e.shapes for e in examples]
        self._ways: dict[Any, dict[tuple[Any, ...], list[Any]]] = {}

    def extent(self, values: Sequence[Any], dtype: np.dtype[Any] | None = None) -> _Extent:
        """What is these values in the examples, which are of `dtype` if it is a floating one."""
        kind = dtype or values[0].__class__
        table = self._ways.get(kind)
        if table is None:
            table = self._ways[kind] = self._table(kind)
        ways = table.get(tuple(values))
        if ways is None:
            raise Untold
        return _Extent(ways)

    def _table(self, kind: Any) -> dict[tuple[Any, ...], list[Any]]:
        """Values in the examples -> all that is these."""
        table: dict[tuple[Any, ...], list[Any]] = {}
        for i, shape in enumerate(self._shapes[0]):
            for axes in _axes(len(shape)):
                counts = [math.prod([shapes[i][a] for a in axes]) for shapes in self._shapes]
                for f in _INTEGERS if kind is int else _FLOATS:
                    try:
                        found = [f(n) for n in counts]
                    except ZeroDivisionError:
                        continue
                    if isinstance(kind, np.dtype):
                        found = [float(kind.type(v)) for v in found]
                    table.setdefault(tuple(found), []).append((f, i, axes))
        return table


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
    return attr.__class__ is _Extent


def _filled(attr: Any, shapes: Sequence[Shape]) -> Any:
    """An attr for operands of these shapes."""
    if attr.__class__ is tuple:
        return tuple([_filled(each, shapes) for each in attr])
    return attr.value(shapes) if attr.__class__ is _Extent else attr


_OF_SIZES = {
    "count", "divisor", "kernel", "offset", "rows", "scale", "shape", "size", "sizes", "starts",
    "stops",
}  # fmt: skip
"""Names of attrs that may come from sizes also where all examples agree."""


def _is_sized(op: Op) -> bool:
    return op is ops.pad_op or op is ops.constant_op or not _OF_SIZES.isdisjoint(op.params)


# ---- templates -------------------------------------------------------------------------------


class _Step(NamedTuple):
    """A step of a template.

    form: of all sizes; if it has attrs, (attrs, operands) -> the form for these. places: of the
    operands. varies: whether attrs depend on sizes.
    """

    form: Callable[..., Any]
    places: tuple[int, ...]
    attrs: Any = None
    varies: bool = False


class Template:
    """What a call computes for operands of any sizes, by examples. One example tells nothing of
    other sizes.

    dtypes: of the results. is_single: whether the call has one result, and no tuple.
    varies: whether an attr depends on sizes.
    """

    def __init__(self, examples: Sequence[Example]):
        first = examples[0]
        if any(e.structure != first.structure for e in examples):
            raise Untold
        self.dtypes, self.is_single = first.result_dtypes, first.is_single
        self._sizes = _Sizes(examples)
        self._fixed: list[tuple[int, int, int]] = []
        self._steps: list[_Step] = []
        columns = [list(each) for each in zip(*[e.steps for e in examples])]
        columns = [_along(_without_expands(each, examples), examples) for each in columns]
        self._places = {i: i for i in range(len(first.dtypes))}  # in examples -> among values
        for place in _needed(columns, first):
            self._add(columns[place - len(first.dtypes)], examples)
            self._places[place] = len(self._places)
        self._results = [self._places[p] for p in first.results]
        if len(examples) == 1:
            self._fix(examples)
        self.varies = any([step.varies for step in self._steps])
        self._only = self._whole(len(first.dtypes))
        self._is_bare = self._only is not None and is_bare(self._only)
        del self._sizes

    def _add(self, steps: Sequence[Step], examples: Sequence[Example]) -> None:
        first, count = steps[0], len(examples[0].dtypes)
        dtypes = tuple(
            [
                examples[0].dtypes[p] if p < count else examples[0].steps[p - count].dtype
                for p in first.places
            ]
        )
        if first.op is ops.constant_op:
            self._add_constant([s.attrs for s in steps], examples)
            return
        places = tuple([self._places[p] for p in first.places])
        dropped = _dropped(steps, examples)
        if dropped is not None:
            self._steps.append(_Step(operator.methodcaller("squeeze", dropped), places))
            return
        if first.op is ops.linear_bias_grad and _is_of_rows(steps, examples):
            self._steps.append(_Step(bias_grad, places))
            return
        attrs = tuple([_merged(each, self._sizes) for each in zip(*[s.attrs for s in steps])])
        if _is_sized(first.op):
            self._fix(examples)
        varies = _has_extents(attrs)
        form = (
            None
            if varies or first.along is not None
            else direct(first.op, attrs, dtypes, first.dtype)
        )
        if form is None:
            find = sized(first.op, dtypes, first.dtype, first.along)
            self._steps.append(_Step(find, places, attrs, varies))
        else:
            self._steps.append(_Step(form, places))

    def _add_constant(self, attrs: Sequence[Any], examples: Sequence[Example]) -> None:
        values = [np.asarray(value_of(*a)) for a in attrs]
        first = values[0]
        if all(v.tobytes() == first.tobytes() for v in values):
            if first.tobytes().strip(b"\0") and first != 1 and np.isfinite(first):
                self._fix(examples)
            first.flags.writeable = False
            self._steps.append(_Step(lambda: first, ()))
            return
        made = first.dtype
        if made.kind not in "iuf":
            raise Untold
        if made.kind == "f":
            extent = self._sizes.extent([float(v) for v in values], made)
        else:
            extent = self._sizes.extent([int(v) for v in values])

        def constant(attrs: tuple[Any, ...], operands: Sequence[Any]) -> Form:
            value = np.asarray(attrs[0], made)
            return lambda: value

        self._steps.append(_Step(constant, (), (extent,), True))

    def _fix(self, examples: Sequence[Example]) -> None:
        """Note the sizes that no example changed, as an attr may depend on them."""
        if self._fixed:
            return
        self._fixed = [
            (i, axis, size)
            for i, shape in enumerate(examples[0].shapes)
            for axis, size in enumerate(shape)
            if size > 1 and all(e.shapes[i][axis] == size for e in examples)
        ]

    def _whole(self, count: int) -> Form | None:
        """The form of a template that is one step over all operands."""
        if len(self._steps) != 1 or not self.is_single:
            return None
        form, places, attrs, _ = self._steps[0]
        is_direct = attrs is None and form.__class__ is not Staged
        return form if is_direct and places == tuple(range(count)) else None

    def check(self, shapes: Sequence[Shape]) -> None:
        """Raise Untold if an attr may be another one for operands of these shapes, after which the
        sizes among the arguments come."""
        for i, axis, size in self._fixed:
            if shapes[i][axis] != size:
                raise Untold

    def __call__(self, arrays: Sequence[Any], shapes: Sequence[Shape], shared: Shared) -> Any:
        """The results, each in contiguous memory of its own, or one if `is_single`. Untold if the
        examples don't tell.

        shapes: as of `check`, which has seen them."""
        only = self._only
        if only is not None:
            return only(*arrays) if self._is_bare else own(quietly(only, *arrays), arrays)
        return self.owned(quietly(self.seen, arrays, shapes, shared), arrays)

    def seen(
        self,
        arrays: Sequence[Any],
        shapes: Sequence[Shape],
        shared: Shared,
        forms: list[tuple[Form, Shape]] | None = None,
    ) -> Any:
        """The results, which may share memory with each other and with the operands. NumPy may
        warn of them. shared: the stages that are known, to which new ones are added. forms: takes
        the forms of the steps and their places."""
        values = list(arrays)
        for form, places, attrs, varies in self._steps:
            operands = [values[p] for p in places]
            if attrs is not None:
                form = form(_filled(attrs, shapes) if varies else attrs, operands)
            if form.__class__ is Staged:
                operands.insert(0, shared)
                places = (SHARED, *places)
            values.append(form(*operands))
            if forms is not None:
                forms.append((form, places))
        if self.is_single:
            return values[self._results[0]]
        return [values[p] for p in self._results]

    def bound(
        self, arrays: Sequence[Any], shapes: Sequence[Shape], shared: Shared
    ) -> tuple[Any, Bound]:
        """What `seen` makes, and the function that makes it of other operands of these shapes."""
        forms: list[tuple[Form, Shape]] = []
        made = self.seen(arrays, shapes, shared, forms)
        run = composed(len(arrays), forms, self._results, self.is_single)
        is_staged = any([SHARED in places for _, places in forms])
        last = self._results[0] - len(arrays) if self.is_single else -1
        bare = (
            last >= 0
            and is_bare(forms[last][0])
            and all([is_bare(form) or form.__class__ in VIEWS for form, _ in forms])
        )
        return made, Bound(run, is_staged, bare)

    def owned(self, made: Any, arrays: Sequence[Any]) -> Any:
        """What `seen` made of `arrays`, each in contiguous memory of its own."""
        if self.is_single:
            return own(made, arrays)
        kept, taken = [], list(arrays)
        for each in made:
            kept.append(own(each, taken))
            taken.append(kept[-1])
        return kept


def own(value: Any, others: Sequence[Any]) -> Any:
    """`value` as a contiguous array that shares no memory with `others`."""
    if value.__class__ is not np.ndarray:
        return np.asarray(value)
    if value.base is None and value.flags.carray:
        for each in others:
            if each is value:
                break
        else:
            return value
    elif value.flags.carray and not any(np.may_share_memory(value, o) for o in others):
        return value
    return np.array(value, order="C")


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
