"""Precedents: how a graph of the same structure was fused, in other sizes.

To find the merges that pay, fusion lowers several times as many kernels as a graph ends with. A
program whose sizes change from step to step, as with texts of any length, would do so at each step.
So a graph is fused as an earlier one was that differs from it in sizes alone, and in none by a
factor of two. Each kernel is still lowered for its own sizes. If one doesn't fit them, the graph is
fused from the beginning.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from ..lower import CannotFuse
from ..ops import initial
from ..target import Target
from .anchors import Cut
from .bundles import keep_updates_apart
from .partition import Group, Partition
from .twins import known

LIMIT = 2000
"""The most precedents that are remembered; beyond that all are forgotten."""


@dataclass(frozen=True)
class Kept:
    """A group of a precedent. anchors: by the place of each in a walk through the graph."""

    anchors: tuple[int, ...]
    kind: str
    is_state: bool


@dataclass(frozen=True)
class Precedent:
    """A graph's groups, each behind those that it reads from. reasons: why anchors were not fused."""

    groups: tuple[Kept, ...]
    reasons: Mapping[tuple[int, int], str]

    @staticmethod
    def of(partition: Partition, number: Mapping[Node, int]) -> Precedent:
        # What a group depends on is a part of what its readers depend on.
        groups = sorted(partition.groups.values(), key=lambda g: g.before.bit_count())
        return Precedent(
            tuple(Kept(tuple(number[a] for a in g.anchors), g.kind, g.is_state) for g in groups),
            {(number[a], number[b]): why for (a, b), why in partition.reasons.items()},
        )

    def apply(self, partition: Partition, nodes: Sequence[Node]) -> bool:
        """Give `partition` the same groups. False if a kernel doesn't fit its sizes."""
        try:
            for kept in self.groups:
                group = partition.add(tuple(nodes[i] for i in kept.anchors))
                group.is_state = kept.is_state
                if group.kind != kept.kind or not _fits(group, partition.target):
                    return False
        except CannotFuse:
            return False
        partition.reasons = {(nodes[i], nodes[j]): why for (i, j), why in self.reasons.items()}
        return True


def _fits(group: Group, target: Target) -> bool:
    """Whether the tiles of a product that folds its rows may have whole ones."""
    return not group.template.kernel.columns or group.domain.row <= target.product_rows


_precedents: dict[Target, dict[bytes, Precedent]] = {}


def fuse(
    found: Cut,
    roots: Sequence[Node],
    results: Sequence[Node],
    leaves: Sequence[Node],
    target: Target,
) -> Partition:
    """The groups of the graph beneath `roots`. results: the nodes whose memory holds the roots."""
    precedents = _precedents.setdefault(target, {})
    number = _walk(roots)
    key = _structure(number, found, results)
    precedent = precedents.get(key)
    if precedent is not None:
        partition = Partition(found, results, leaves, target, begun=False)
        if precedent.apply(partition, [*number]):
            return partition
    partition = Partition(found, results, leaves, target)
    keep_updates_apart(partition)
    partition.merge()
    if len(precedents) >= LIMIT:
        precedents.clear()
    precedents[key] = Precedent.of(partition, number)
    return partition


def clear() -> None:
    """Forget all precedents."""
    _precedents.clear()


_SIZED = (Kind.LEAF, Kind.CONSTANT, Kind.GENERATE, Kind.MOVEMENT)
"""Kinds of nodes whose attrs are sizes, or numbers that may follow from them."""


def _walk(roots: Iterable[Node]) -> dict[Node, int]:
    """The nodes of a graph, operands first, with their places. The order depends on the structure
    alone, not on which nodes other graphs had before."""
    number: dict[Node, int] = {}
    stack = list(roots)[::-1]
    while stack:
        node = stack[-1]
        pending = [o for o in node.operands if o not in number]
        if pending:
            stack.extend(reversed(pending))
            continue
        stack.pop()
        number.setdefault(node, len(number))
    return number


def _structure(number: Mapping[Node, int], found: Cut, results: Iterable[Node]) -> bytes:
    """A key that graphs share if they differ in sizes alone, and in none by a factor of two."""
    text = array("q")
    for node in number:
        attrs = () if node.op.kind in _SIZED or node.op is initial else node.attrs
        size = math.prod(node.shape).bit_length()
        text.append(known((node.op, attrs, node.dtype, node.rank, size)))
        text.extend([number[o] for o in node.operands])
    for members in (sorted(map(number.__getitem__, found.anchors)), map(number.__getitem__, results)):
        text.append(-1)
        text.extend(members)
    return text.tobytes()
