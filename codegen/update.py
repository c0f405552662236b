"""Scatter: the kernel that writes values at positions that are data."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir.node import Node
from tilewright.ir.shape import contiguous_strides

from . import index as ix
from .domain import Domain
from .index import Axis, Data, Index
from .kernel import Buffer, Kernel, Store
from .lower import Lowering, grouped_scatter
from .movement import narrow


def lower_update(
    node: Node, buffer: Buffer, source: Callable[[Node], Buffer | None]
) -> tuple[Kernel, Lowering]:
    """The kernel that updates `buffer`, which holds the base of the scatter `node`.

    Axes along which no two points can meet are parallel; the others run in order, so that "set"
    keeps the last value and sums are made in one order.
    """
    base, values, *indices = node.operands
    axis, mode = node.attrs
    placed = values.rank - (base.rank - len(indices))
    domain = Domain(tuple(values.shape))
    lowering = Lowering(domain, source)
    lowering.nodes[node] = None
    place = domain.place(values.shape)
    assert place is not None
    at = place[axis : axis + placed]
    positions = []
    for dim, operand in enumerate(indices, axis):
        value = lowering.value(operand, narrow(at, operand.shape))
        positions.append(lowering.data_index(value, base.shape[dim], dim, node))
    where = (*place[:axis], *positions, *place[axis + placed :])
    offset = ix.linearize(where, contiguous_strides(base.shape))
    store = Store(buffer, offset, lowering.value(values, place), mode, node.op is grouped_scatter)

    apart = {*domain.axes[:axis], *domain.axes[axis + placed :]}
    for position in positions:
        apart |= _told_apart(position)
    parallel = tuple(a for a in domain.parallel if a in apart)
    ordered = tuple(a for a in domain.parallel if a not in apart)
    return Kernel("", parallel, ordered, (store,)), lowering


def _told_apart(position: Index) -> set[Axis]:
    """Axes such that points which differ in any of them have different positions."""
    if any(isinstance(atom, Data) for atom in ix.walk(position)) or not position.is_affine:
        return set()
    reach = 0
    for atom, coefficient in sorted(position.terms, key=lambda term: abs(term[1])):
        if abs(coefficient) <= reach:
            return set()
        reach += abs(coefficient) * (atom.extent - 1)  # type: ignore[union-attr]
    return position.axes()
