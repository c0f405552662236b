"""Slices that are written in place.

A write into a slice is recorded as a choice: inside of the slice the new value, elsewhere what was
there. Fused, that costs nothing in memory, but each of k writes is a choice at each element of the
whole. A chain of many writes to one tensor, as of tiles to a picture, is made in its memory
instead, each by a kernel over its slice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode, intern, reachable
from tilewright.ir.op import Kind, Op
from tilewright.ir.passes.simplify import splat

from . import index as ix
from .domain import Place
from .index import Axis
from .places import Places
from .target import Target


def _numpy(base: Any, value: Any, starts: Any, steps: Any) -> Any:
    out = np.array(base)
    ends = (a + n * s for a, n, s in zip(starts, value.shape, steps, strict=True))
    out[tuple(map(slice, starts, ends, steps))] = value
    return out


overwrite = Op(
    "overwrite",
    Kind.SCATTER,
    lambda base, value, starts, steps: (base.shape, base.dtype),
    params=("starts", "steps"),
    numpy=_numpy,
)
"""`base` with the slice of `value`'s shape that has these starts and steps replaced by it."""


def write_in_place(roots: Sequence[Node], target: Target) -> list[Node]:
    """`roots` with those chains of writes made in place for which that costs less."""
    nodes = reachable(roots)
    writes = {n for n in nodes if _is_write(n)}
    if not writes:
        return list(roots)
    readers = Counter(o for n in nodes for o in n.operands)
    chosen: set[Node] = set()
    inner = {n.operands[2] for n in writes}.intersection(writes).difference(roots)
    for last in writes - inner:
        chain = [last]
        while chain[-1].operands[2] in inner:
            chain.append(chain[-1].operands[2])
        if _gains(chain, readers, target):
            chosen.update(chain)
    if not chosen:
        return list(roots)
    done: dict[Node, Node] = {}
    with grad_mode(False):
        for node in nodes:
            operands = tuple(done[o] for o in node.operands)
            if node in chosen:
                done[node] = _written(node, operands)
            elif operands != node.operands:
                own = node.device if node.op.kind is Kind.TRANSFER else None
                done[node] = intern(node.op, operands, node.attrs, own, node.loc)
            else:
                done[node] = node
    return [done[r] for r in roots]


def _is_write(node: Node) -> bool:
    """Whether a node is a choice between elements of a slice and another tensor of its shape."""
    if node.op is not ops.where or node.operands[2].shape != node.shape:
        return False
    inside = node.operands[0]
    return (
        inside.op is ops.pad_op
        and inside.shape == node.shape
        and min((*inside.attrs[0], *inside.attrs[1])) >= 0
        and bool(splat(inside.operands[0]))
        and splat(inside.operands[1]) is not None
        and not splat(inside.operands[1])
    )


def _gains(chain: Sequence[Node], readers: Counter[Node], target: Target) -> bool:
    """Whether writes in place cost less than choices: a copy of what was there before all of them,
    then a launch each. A choice is made at each element of the whole, in a kernel with others, or
    it moves the whole if that is read before the next write."""
    elements, size = math.prod(chain[0].shape), chain[0].dtype.itemsize
    whole = 2 * elements * size
    choice = 2 * elements * target.op_cost
    apart = whole + sum(
        target.launch_cost + 2 * math.prod(n.operands[0].operands[0].shape) * size for n in chain
    )
    together = sum(choice if readers[n.operands[2]] == 1 else whole for n in chain)
    return apart < together


def _written(node: Node, operands: Sequence[Node]) -> Node:
    inside, value, base = operands
    part = inside.operands[0]
    low, _, interior = inside.attrs
    if value.op is inside.op and value.attrs == inside.attrs:
        new = value.operands[0]
    else:
        stops = (a + max((n - 1) * (i + 1) + 1, 0) for n, a, i in zip(part.shape, low, interior))
        new = ops.slice_(value, low, tuple(stops), [i + 1 for i in interior])
    steps = tuple(i + 1 for i in interior)
    return intern(overwrite, (base, new), (low, steps), loc=node.loc)


def place_of(node: Node, at: Place) -> Place:
    """Where an `overwrite` writes the element of its value at a place."""
    starts, steps = node.attrs
    return tuple(p * step + start for p, start, step in zip(at, starts, steps, strict=True))


LONGEST = 64
"""Beyond so many readings what a value is made of is not looked at."""


def reads_elsewhere(node: Node, base: Node) -> bool:
    """Whether the value of an `overwrite` has elements of `base`, other than those they replace."""
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
                if len(seen) > LONGEST:
                    return True
                seen.add(found)
                queue.append(found)
    return False
