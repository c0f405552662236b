"""Writes to slices in place.

A write to a slice is recorded as a choice at each element of the whole tensor: the new value inside
of the slice, the old one elsewhere. Fused, that costs nothing in memory. But k writes are k choices
at each element. So a long chain of writes to one tensor, such as tiles of a picture, happens in its
memory instead, with a kernel over each slice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode, intern, reachable
from tilewright.ir.op import Kind
from tilewright.ir.passes.writes import Write, write_of

from ..kernel import index as ix
from ..kernel.index import Axis
from ..lower.places import Places
from ..lower.scatter import place_of
from ..ops import overwrite
from ..target import Target


def write_in_place(roots: Sequence[Node], target: Target, inner: Sequence[Node] = ()) -> list[Node]:
    """`roots`, then `inner`, with chains of writes done in place where that costs less."""
    nodes = reachable(roots)
    writes = {n for n in nodes if _slice_write(n) is not None}
    if not writes:
        return [*roots, *inner]
    readers = Counter(o for n in nodes for o in n.operands)
    chosen: set[Node] = set()
    followed = {n.operands[2] for n in writes}.intersection(writes).difference(roots)
    for last in writes - followed:
        chain = [last]
        while chain[-1].operands[2] in followed:
            chain.append(chain[-1].operands[2])
        if _gains(chain, readers, target):
            chosen.update(chain)
    if not chosen:
        return [*roots, *inner]
    done: dict[Node, Node] = {}
    with grad_mode(False):
        for node in nodes:
            operands = tuple([done[o] for o in node.operands])
            if node in chosen:
                done[node] = _written(node, operands)
            elif operands != node.operands:
                own = node.device if node.op.kind is Kind.TRANSFER else None
                done[node] = intern(node.op, operands, node.attrs, own, node.loc)
            else:
                done[node] = node
    return [done.get(n, n) for n in (*roots, *inner)]


def _gains(chain: Sequence[Node], readers: Counter[Node], target: Target) -> bool:
    """Whether writes in place cost less than choices.

    In place: a copy of the tensor before all of them, and a launch each. As choices: arithmetic at
    each element, or moving the whole tensor where something reads it before the next write.
    """
    elements, size = math.prod(chain[0].shape), chain[0].dtype.itemsize
    whole = 2 * elements * size
    choice = 2 * elements * target.op_cost
    apart = whole + sum(
        target.launch_cost + 2 * math.prod(n.operands[0].operands[0].shape) * size for n in chain
    )
    together = sum(choice if readers[n.operands[2]] == 1 else whole for n in chain)
    return apart < together


def _slice_write(node: Node) -> Write | None:
    """The write that `node` is, if it is one to a slice of its whole tensor."""
    write = write_of(node)
    is_slice = write is not None and len(write.steps) == 1 and write.steps[0][0] is ops.slice_op
    return write if is_slice else None


def _written(node: Node, operands: tuple[Node, ...]) -> Node:
    write = _slice_write(intern(node.op, operands, node.attrs, loc=node.loc))
    assert write is not None, "its operands were rebuilt, not replaced"
    low, _, steps = write.steps[0][1]
    return intern(overwrite, (write.base, write.value), (low, steps), loc=node.loc)


MOST_READINGS = 64
"""A value with more readings than these counts as reading anything."""


def reads_elsewhere(node: Node, base: Node) -> bool:
    """Whether the value of an `overwrite` reads `base` elsewhere than it is written to."""
    value = node.operands[1]
    places = Places()
    own = tuple(ix.of(Axis(f"d{i}", n)) for i, n in enumerate(value.shape))
    expected = places.number(place_of(node, own))
    queue = [(value, places.every(value))]
    seen = set(queue)
    while queue:
        for found in places.operands(*queue.pop()):
            if found[0] is base and found[1][0] != expected:
                return True
            if found[0].seq > base.seq and found not in seen:
                if len(seen) > MOST_READINGS:
                    return True
                seen.add(found)
                queue.append(found)
    return False
