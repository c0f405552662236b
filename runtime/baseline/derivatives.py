"""Templates of calls through which gradients flow: what a call and its derivative compute, for
operands of any sizes, learned from examples (`templates.py`)."""

from __future__ import annotations

import operator
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.node import Node, beneath
from tilewright.ir.op import Kind
from tilewright.ir.ops.generate import leaf
from tilewright.ir.ops.marker import value_node
from tilewright.ir.passes.autodiff import pullback

from . import outlines
from .bound import Bound
from .examples import Example
from .outlines import Outline
from .step_forms import Shape, Shared, Untold
from .templates import Template

_FREE = (Kind.MOVEMENT, Kind.CONSTANT)
"""Kinds of ops that a derivative computes again, rather than that the call keeps their values."""


class Differentiated:
    """A call and its derivative, for operands of these shapes.

    forward: the call, whose results are followed by other values that its derivative reads.
    backward: the derivative, of the values that it reads and the cotangents of the results.
    reads: which those values are: places of operands, and after them of what `forward` makes.
    seeds: the results with a cotangent. cotangents: the operands that get one, in order. is_single,
    count: whether the call has one result and no tuple, and how many. shapes: see Example.
    """

    def __init__(
        self,
        operands: Sequence[Node],
        tracked: Sequence[Node],
        made: Any,
        sizes: Sequence[Shape] = (),
    ):
        """operands: leaves. tracked: the variables of those with a gradient, and the others.
        made: what the call is on `tracked`. sizes: see Example."""
        self.is_single = made.__class__ is Node
        results: tuple[Node, ...] = (made,) if self.is_single else tuple(made)
        self.count = len(results)
        if len({*results}) < len(results):  # their cotangents can't be told apart
            raise Untold
        self.seeds = [i for i, r in enumerate(results) if r.requires_grad]
        seeds = {results[i]: _seed(results[i], i) for i in self.seeds}
        variables = [t for t, o in zip(tracked, operands) if t is not o]
        found = pullback(seeds, variables, stops=variables)
        places = [i for i, t in enumerate(tracked) if t in found and t is not operands[i]]
        self.cotangents = places
        grads = [found[tracked[i]] for i in places]
        read = _read(grads, results, {*seeds.values()})
        kept = [n for n in read if n not in operands and n not in results]
        known = [*operands, *results, *kept]
        self.reads = [known.index(n) for n in read]
        whole = results[0] if len(results) == 1 and not kept else (*results, *kept)
        self.forward = Example(operands, whole, sizes)
        shapes = [tuple(o.shape) for o in operands]
        self.backward = Example([*read, *seeds.values()], tuple(grads), [*shapes, *sizes])
        self.shapes = self.forward.shapes

    @property
    def structure(self) -> Any:
        """What examples of one template have in common, besides the structures of their parts."""
        return self.reads, self.seeds, self.cotangents


def _seed(result: Node, number: int) -> Node:
    return leaf(-1 - number, result.shape, result.dtype)


def _read(grads: Sequence[Node], results: Sequence[Node], seeds: Collection[Node]) -> list[Node]:
    """The values of the forward pass that cotangents read, other than those that cost nothing to
    compute again."""
    forward = beneath(results)
    found: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(reversed(grads))
    while stack:
        node = value_node(stack.pop())
        if node in seen or node in seeds:
            continue
        seen.add(node)
        if node in forward and node.op.kind not in _FREE:
            found[node] = None
        else:
            stack.extend(reversed(node.operands))
    return list(found)


class DifferentiatedOutline(NamedTuple):
    """What examples of a call and its derivative have in common. See Differentiated."""

    forward: Outline
    backward: Outline
    operand_dtypes: tuple[DType, ...]
    seeds: tuple[int, ...]
    reads: tuple[int, ...]
    cotangents: tuple[int, ...]
    results: int
    is_single: bool


def outlined(examples: Sequence[Differentiated]) -> DifferentiatedOutline:
    """The outline of examples; Untold if they have nothing in common."""
    first = examples[0]
    if any(e.structure != first.structure for e in examples):
        raise Untold
    return DifferentiatedOutline(
        outlines.outlined([e.forward for e in examples]),
        outlines.outlined([e.backward for e in examples]),
        tuple(first.forward.dtypes),
        tuple(first.seeds),
        tuple(first.reads),
        tuple(first.cotangents),
        first.count,
        first.is_single,
    )


class DifferentiatedTemplate:
    """What a call and its derivative compute for operands of any sizes that its outline tells of.

    dtypes, operand_dtypes: of the results and of the operands. is_single: whether the call has one
    result, and no tuple. is_free: see Template, of both. has_limits: that of the derivative. seeds,
    reads, cotangents: see Differentiated. operands_read, results_read: the operands and the results
    among `reads`.
    """

    def __init__(self, outline: DifferentiatedOutline):
        self.seeds, self.reads, self.cotangents = outline.seeds, outline.reads, outline.cotangents
        self.is_single, count = outline.is_single, outline.results
        self.forward, self._backward = Template(outline.forward), Template(outline.backward)
        self.is_free = self.forward.is_free and self._backward.is_free
        self.has_limits = self._backward.has_limits
        self.dtypes = outline.forward.dtypes[:count]
        self.operand_dtypes = outline.operand_dtypes
        operands = len(self.operand_dtypes)
        self.operands_read = [p for p in self.reads if p < operands]
        self.results_read = [p - operands for p in self.reads if operands <= p < operands + count]
        self._take = operator.itemgetter(*self.reads) if len(self.reads) > 1 else None

    def kept(self, operands: Sequence[Any], made: Sequence[Any]) -> Sequence[Any]:
        """The arrays that the derivative reads."""
        reads = self.reads
        if not reads:
            return ()
        known = [*operands, *made]
        return self._take(known) if self._take is not None else (known[reads[0]],)

    def check(self, shapes: Sequence[Shape], made: Sequence[Any]) -> None:
        """Raise Untold if the examples don't tell the derivative for operands of these shapes.
        made: what `forward` has made of them. shapes: as of `Template.check`."""
        results = [a.shape for a in made]
        known = [*shapes[: len(self.operand_dtypes)], *results]
        seeds = [results[i] for i in self.seeds]
        self._backward.check([*[known[p] for p in self.reads], *seeds, *shapes])

    def backward(
        self, kept: Sequence[Any], seeds: Sequence[Any], shapes: Sequence[Shape], shared: Shared
    ) -> list[Any]:
        """The cotangents of the operands `cotangents`. They may share memory with each other and
        with what is given. Called in a block of `quietly`.

        shapes: of the operands, and the sizes among the arguments. shared: the stages that the
        call has left."""
        given = [*kept, *seeds]
        if self._backward.varies:
            shapes = [*[a.shape for a in given], *shapes]
        found: list[Any] = self._backward.seen(given, shapes, shared)
        return found

    def bound_backward(
        self,
        kept: Sequence[Any],
        seeds: Sequence[Any],
        shapes: Sequence[Shape],
        shared: Shared,
        may_write: bool,
    ) -> tuple[list[Any], Bound | None]:
        """What `backward` makes, and the function that makes it for other operands of these
        shapes. may_write: see `composed`."""
        given = [*kept, *seeds]
        shapes = [*[a.shape for a in given], *shapes]
        return self._backward.bound(given, shapes, shared, may_write, owns=False)


class Join:
    """A call that joins tensors along an axis and its derivative, with the interface of a
    template. new_axis: whether the axis is a new one."""

    is_single = True
    is_free = False
    seeds = (0,)
    reads: Sequence[int] = ()
    operands_read: Sequence[int] = ()
    results_read: Sequence[int] = ()

    def __init__(self, count: int, axis: int, new_axis: bool, dtype: DType):
        self.dtypes, self.operand_dtypes = [dtype], [dtype] * count
        self.cotangents = range(count)
        self._axis, self._new_axis = axis, new_axis

    @property
    def forward(self) -> Join:
        return self

    def __call__(
        self, arrays: Sequence[Any], shapes: Sequence[Shape] = (), shared: Shared | None = None
    ) -> Any:
        """A ValueError or IndexError if they can't be joined."""
        if self._new_axis:
            axis = self._axis % (arrays[0].ndim + 1)
            place = (*[slice(None)] * axis, None)
            return np.concatenate([each[place] for each in arrays], axis)
        return self.owned(np.concatenate(arrays, self._axis), arrays)

    def bound(
        self, arrays: Sequence[Any], shapes: Sequence[Shape], shared: Shared, may_write: bool
    ) -> tuple[Any, Bound]:
        """See Template.bound."""
        return self(arrays), Bound(lambda *each: self(each), is_staged=False, is_bare=True)

    def owned(self, made: Any, arrays: Sequence[Any]) -> Any:
        return np.asarray(made, order="C")

    def kept(self, operands: Sequence[Any], made: Sequence[Any]) -> Sequence[Any]:
        return ()

    def backward(
        self, kept: Sequence[Any], seeds: Sequence[Any], shapes: Sequence[Shape], shared: Shared
    ) -> list[Any]:
        whole = np.moveaxis(seeds[0], self._axis, 0)
        if self._new_axis:
            return list(whole)
        parts, start = [], 0
        for shape in shapes:
            stop = start + shape[self._axis]
            parts.append(np.moveaxis(whole[start:stop], 0, self._axis))
            start = stop
        return parts

    def bound_backward(
        self,
        kept: Sequence[Any],
        seeds: Sequence[Any],
        shapes: Sequence[Shape],
        shared: Shared,
        may_write: bool,
    ) -> tuple[list[Any], Bound]:
        """See DifferentiatedTemplate.bound_backward."""

        def parts(g: Any) -> list[Any]:
            return self.backward((), (g,), shapes, shared)

        return parts(seeds[0]), Bound(parts, False)
