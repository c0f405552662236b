"""The places at which a kernel reads its nodes: they tell how often it would compute each node.

A node that is read through several index maps is lowered once for each place the maps lead to, and
once for each path through guards, since a guard masks all loads under it. Along a chain of such
nodes the numbers multiply. `Places` follows the maps without lowering anything.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from ..kernel import Condition, Guard, Kernel, Load, Value, data_values
from ..kernel import index as ix
from ..kernel.domain import Place
from ..kernel.index import Axis
from . import movement

Reading = tuple[int, int]
"""A place and the guards on the way to it, by number."""

GuardPath = tuple[int, tuple[Condition, ...]]
"""The number of the path so far, and the conditions of its next guard."""

_POINTWISE = (Kind.ELEMENTWISE, Kind.REDUCE, Kind.SCAN)
"""Nodes that read operands of their own shape element by element. A fold among them is over one
element: any other fold is an anchor."""


class Places:
    """The places at which nodes are read, as numbers. Equal steps are followed once."""

    def __init__(self) -> None:
        self._interned: list[Any] = [()]
        self._number: dict[Hashable, int] = {}
        self._known: dict[Hashable, Reading | None] = {}

    def every(self, node: Node) -> Reading:
        """The place of a kernel's store: each element of `node` at a point of its own."""
        return self.number(tuple(ix.of(Axis(f"d{i}", n)) for i, n in enumerate(node.shape))), 0

    def operands(self, node: Node, at: Reading) -> Iterator[tuple[Node, Reading]]:
        """The operands that are read to compute `node` at a place, each with its place."""
        if node.op.kind is Kind.GATHER:
            yield from self._gathered(node, at)
            return
        start = 0  # where the operand begins in a concatenation
        for number, operand in enumerate(node.operands):
            if operand.shape == node.shape and node.op.kind in _POINTWISE:
                yield operand, at
                continue
            key = (node.op, node.attrs, node.shape, number, start, operand.shape, at)
            if key not in self._known:
                self._known[key] = self._follow(node, number, start, at)
            found = self._known[key]
            if found is not None:
                yield operand, found
            if node.op is ops.cat_op:
                start += operand.shape[node.attrs[0]]

    def _follow(self, node: Node, number: int, start: int, at: Reading) -> Reading | None:
        place, path = self._interned[at[0]], at[1]
        operand = node.operands[number]
        if node.op is ops.pad_op:
            if number:
                return self.number(()), path
            found = movement.pad_source(node, place)
            return None if found is None else self._guarded(*found, path)
        if node.op is ops.cat_op:
            return self._part(node, number, start, place, path)
        if movement.is_map(node):
            return self.number(movement.source(node, place)), path
        if node.op.kind in (Kind.ELEMENTWISE, Kind.GENERATE):
            return self.number(movement.narrow(place, operand.shape)), path
        return self.every(operand)

    def _part(self, node: Node, number: int, start: int, place: Place, path: int) -> Reading | None:
        """The reading of a concatenation's operand, which begins at `start`."""
        axis = node.attrs[0]
        size = node.operands[number].shape[axis]
        kept = movement.simplified([Condition(place[axis], start, start + size)])
        if kept is None or not size:
            return None
        inside = place[axis] - start if size != 1 else ix.ZERO
        return self._guarded(kept, (*place[:axis], inside, *place[axis + 1 :]), path)

    def _gathered(self, node: Node, at: Reading) -> Iterator[tuple[Node, Reading]]:
        """The operands of a gather. A position that is data differs from place to place."""
        x, *indices = node.operands
        axis = node.attrs[0]
        place, path = self._interned[at[0]], at[1]
        placed = len(node.shape) - (x.rank - len(indices))
        for operand in indices:
            where = movement.narrow(place[axis : axis + placed], operand.shape)
            yield operand, (self.number(where), path)
        data = (
            ix.of(Axis(f"data {node.seq} {at} {i}", x.shape[axis + i])) for i in range(len(indices))
        )
        yield x, (self.number((*place[:axis], *data, *place[axis + placed :])), path)

    def _guarded(self, conditions: Sequence[Condition], place: Place, path: int) -> Reading:
        if conditions:
            path = self._intern((path, tuple(conditions)))
        return self.number(place), path

    def number(self, place: Place) -> int:
        return self._intern(place)

    def _intern(self, thing: Hashable) -> int:
        """The number of a place or a path, above 0; 0 is the path without guards."""
        found = self._number.get(thing)
        if found is None:
            found = self._number[thing] = len(self._interned)
            self._interned.append(thing)
        return found


def most_ways(kernel: Kernel, limit: int) -> int:
    """The largest number of paths through guards to one value that reads memory. Counting ends
    once there are more than `limit`."""
    reads: dict[int, bool] = {}
    for value in kernel.values:
        made_of = (*value.operands(), *(d for i in value.indices() for d in data_values(i)))
        reads[id(value)] = isinstance(value, Load) or any(reads[id(v)] for v in made_of)
    ways: dict[int, set[GuardPath]] = {id(v): set() for v in kernel.values}
    start: GuardPath = (0, ())
    for store in kernel.stores:
        for root in (store.value, *data_values(store.offset)):
            ways[id(root)].add(start)
    most = 1
    numbers: dict[GuardPath, int] = {start: 0}
    for value in reversed(kernel.values):
        own = ways[id(value)]
        if not reads[id(value)]:
            continue
        most = max(most, len(own))
        if most > limit:
            return most
        below: tuple[Value, ...] = value.operands()
        if isinstance(value, Guard):
            below = (value.outside,)
            ways[id(value.inside)].update(
                (numbers.setdefault(way, len(numbers)), value.conditions) for way in own
            )
        for operand in below:
            ways[id(operand)] |= own
        for index in value.indices():
            for data in data_values(index):
                ways[id(data)] |= own
    return most
