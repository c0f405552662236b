"""Precedents: how a graph of the same structure was cut and fused, in other sizes.

To find the merges that pay, fusion lowers several times as many kernels as a graph ends with. A
program whose sizes change from step to step, as with texts of any length, would do so at each step.
So a graph is cut and fused as an earlier one was that differs from it in sizes alone, in large ones
by less than two and in others by less than eight. Each kernel is still lowered for its own sizes.
If one doesn't fit them, the graph is cut and fused from the beginning.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from ..lower import CannotFuse
from ..ops import initial
from ..target import Target
from .anchors import Cut, cut, memory
from .bundles import keep_updates_apart
from .partition import Group, Partition
from .twins import known

MOST = 8 << 20
"""The most bytes of the keys of precedents, which themselves take about three times as much. Beyond
that all are forgotten."""
SMALL = 16
"""A tensor of an element for so many bytes of a launch's cost takes little time beside it."""


@dataclass(frozen=True)
class Kept:
    """A group of a precedent. anchors: by number."""

    anchors: tuple[int, ...]
    kind: str
    is_state: bool


@dataclass(frozen=True)
class Precedent:
    """How a graph was cut and fused, with its nodes by number.

    reads: what each anchor reads. pairs: see `Cut`. groups: each behind those that it reads from.
    reasons: why anchors were not fused.
    """

    reads: Mapping[int, tuple[int, ...]]
    pairs: bool
    groups: tuple[Kept, ...]
    reasons: Mapping[tuple[int, int], str]

    @staticmethod
    def of(found: Cut, partition: Partition, number: Mapping[Node, int]) -> Precedent:
        # What a group depends on is a part of what its readers depend on.
        groups = sorted(partition.groups.values(), key=lambda g: g.before.bit_count())
        return Precedent(
            {number[a]: tuple(number[r] for r in found.reads[a]) for a in found.anchors},
            found.pairs,
            tuple(Kept(tuple(number[a] for a in g.anchors), g.kind, g.is_state) for g in groups),
            {(number[a], number[b]): why for (a, b), why in partition.reasons.items()},
        )

    def apply(
        self,
        nodes: Sequence[Node],
        results: Sequence[Node],
        leaves: Sequence[Node],
        target: Target,
    ) -> Partition | None:
        """The same groups of a graph with these nodes. None if a kernel doesn't fit its sizes."""
        reads = {nodes[a]: tuple(nodes[r] for r in read) for a, read in self.reads.items()}
        found = Cut(sorted(reads, key=lambda n: n.seq), reads, self.pairs)
        partition = Partition(found, results, leaves, target, begun=False)
        try:
            for kept in self.groups:
                group = partition.add(tuple(nodes[i] for i in kept.anchors))
                group.is_state = kept.is_state
                if group.kind != kept.kind or not _fits(group, target):
                    return None
        except CannotFuse:
            return None
        partition.reasons = {(nodes[i], nodes[j]): why for (i, j), why in self.reasons.items()}
        return partition


def _fits(group: Group, target: Target) -> bool:
    """Whether the tiles of a product that folds its rows may have whole ones."""
    return not group.template.kernel.columns or group.domain.row <= target.product_rows


_precedents: dict[Target, dict[bytes, Precedent]] = {}


def fuse(roots: Sequence[Node], leaves: Sequence[Node], target: Target) -> Partition:
    """The groups of the graph beneath `roots`. leaves: the buffers that it reads."""
    precedents = _precedents.setdefault(target, {})
    number, results = _walk(roots), [memory(r) for r in roots]
    key = _structure(number, results, target)
    precedent = precedents.get(key)
    if precedent is not None:
        made = precedent.apply([*number], results, leaves, target)
        if made is not None:
            return made
    found = cut(roots, target)
    partition = Partition(found, results, leaves, target)
    keep_updates_apart(partition)
    partition.merge()
    if sum(map(len, precedents)) + len(key) > MOST:
        precedents.clear()
    precedents[key] = Precedent.of(found, partition, number)
    return partition


def clear() -> None:
    """Forget all precedents."""
    _precedents.clear()


_NUMBERED = (Kind.LEAF, Kind.CONSTANT, Kind.GENERATE)
_SIZED = frozenset({ops.reshape_op, ops.expand_op, ops.slice_op, ops.pad_op, initial})
"""Kinds and ops whose attrs are sizes, numbers that may follow from them, or numbers of nodes."""


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


def _structure(number: Mapping[Node, int], results: Iterable[Node], target: Target) -> bytes:
    """A key that graphs share if they differ in sizes alone: in none between 1 and more, in large
    ones by less than two, and in others by less than eight."""
    least = target.launch_cost // SMALL
    text = array("q")
    for node in number:
        attrs = () if node.op.kind in _NUMBERED or node.op in _SIZED else node.attrs
        count = math.prod(node.shape)
        bits = count.bit_length()
        size = bits if count >= least or not count else -1 - bits // 3
        ones = tuple([d == 1 for d in node.shape])
        text.append(known((node.op, attrs, node.dtype, ones, size)))
        text.extend([number[o] for o in node.operands])
    text.append(-1)
    text.extend([number[each] for each in results])
    return text.tobytes()
