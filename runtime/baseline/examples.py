"""Examples of calls: the ops that a call consists of, for operands of some sizes."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT8, DType
from tilewright.ir.node import Node
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.marker import MARKERS
from tilewright.ir.passes.autodiff import decomposed
from tilewright.ir.passes.legalize import widen_long_sums

from . import composites, scans
from .program import CELLS, MOST_SCORES, scores_of
from .step_forms import WIDE, Shape, Untold


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
            inner = _instead(node)
            if inner is not None:
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
    Kind.HOST,
}  # fmt: skip


def _refuse(node: Node) -> None:
    """Raise Untold for a node that isn't computed by a form of its own."""
    op = node.op
    if (op.kind not in _KINDS and op is not ops.iota and op not in ops.DRAWS) or any(
        d in FLOAT8 for d in (node.dtype, *_dtypes(node))
    ):
        raise Untold
    if op.kind is Kind.ATTENTION and (scores_of(node) > MOST_SCORES or not _is_ready(node)):
        raise Untold


def _instead(node: Node) -> Node | None:
    """What a program computes instead of a node: wide sums, or the ops of a formula."""
    if node.op.wide and not scans.has_form(node):
        widened = widen_long_sums(node)
        if widened is not None:
            return widened
    return decomposed(node) if _is_formula(node) else None


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
