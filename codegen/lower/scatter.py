"""Updates: kernels that replace some values in memory, at positions that are data (scatters) or
known (overwritten slices)."""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.ir.node import Node
from tilewright.ir.op import Kind
from tilewright.ir.shape import contiguous_strides

from ..kernel import Buffer, Kernel, Store
from ..kernel import index as ix
from ..kernel.domain import Domain, Place
from ..kernel.index import Axis, Data, Index
from ..ops import grouped_scatter, overwrite
from .lowering import Lowering
from .movement import narrow


def lower_update(
    node: Node, buffer: Buffer, source: Callable[[Node], Buffer | None], rounds: bool = True
) -> tuple[Kernel, Lowering]:
    """The kernel that updates `buffer`, which holds the base of `node`.

    Axes along which no two points meet are parallel. The others run in order, so that "set" keeps
    the last value and sums are added in one order.
    """
    base, values = node.operands[:2]
    mode = "set" if node.op is overwrite else node.attrs[1]
    lowering = Lowering(Domain(tuple(values.shape)), source, rounds)
    lowering.nodes[node] = None
    place = lowering.domain.place(values.shape)
    assert place is not None
    if node.op is overwrite:
        where, parallel = place_of(node, place), lowering.domain.parallel
        ordered: tuple[Axis, ...] = ()
    else:
        where, parallel, ordered = _places(node, lowering)
    offset = ix.linearize(where, contiguous_strides(base.shape))
    value = lowering.value(values, place)
    store = Store(buffer, offset, value, mode, node.op is grouped_scatter)
    return Kernel("", parallel, ordered, (store,)), lowering


_KNOWN = (Kind.GENERATE, Kind.CONSTANT, Kind.MOVEMENT, Kind.ELEMENTWISE)


def _places(node: Node, lowering: Lowering) -> tuple[Place, tuple[Axis, ...], tuple[Axis, ...]]:
    """The place of each value, the axes along which no two points meet, and the other axes."""
    base, values, *indices = node.operands
    axis = node.attrs[0]
    placed = values.rank - (base.rank - len(indices))
    domain = lowering.domain
    place = domain.place(values.shape)
    assert place is not None
    at = place[axis : axis + placed]
    positions = []
    for dim, operand in enumerate(indices, axis):
        value = lowering.value(operand, narrow(at, operand.shape))
        positions.append(lowering.data_index(value, base.shape[dim], dim, node))
    apart = {*domain.axes[:axis], *domain.axes[axis + placed :]}
    for position in positions:
        apart |= _told_apart(position)
    parallel = tuple(a for a in domain.parallel if a in apart)
    ordered = tuple(a for a in domain.parallel if a not in apart)
    return (*place[:axis], *positions, *place[axis + placed :]), parallel, ordered


def _told_apart(position: Index) -> set[Axis]:
    """The axes that tell positions apart: points that differ in one of them have other
    positions."""
    if any(isinstance(atom, Data) for atom in ix.walk(position)) or not position.is_affine:
        return set()
    reach = 0
    for atom, coefficient in sorted(position.terms, key=lambda term: abs(term[1])):
        if abs(coefficient) <= reach:
            return set()
        reach += abs(coefficient) * (atom.extent - 1)  # type: ignore[union-attr]
    return position.axes()


def meeting(node: Node) -> int:
    """How many updates of a scatter may meet at one element, as far as its positions are known when
    compiling."""

    def source(operand: Node) -> Buffer | None:
        if operand.op.kind in _KNOWN:
            return None
        return Buffer("", operand.dtype, math.prod(operand.shape))

    lowering = Lowering(Domain(tuple(node.operands[1].shape)), source)
    _, _, ordered = _places(node, lowering)
    return math.prod(a.extent for a in ordered)


def place_of(node: Node, at: Place) -> Place:
    """Where an `overwrite` writes the element of its value at a place."""
    starts, steps = node.attrs
    return tuple(p * step + start for p, start, step in zip(at, starts, steps, strict=True))
