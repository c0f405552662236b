"""The graph of an epoch in parts: what each result that lives has beneath it."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.passes import autodiff

FEW = 8
"""Results up to which each has the graph beneath it to itself. It costs less than parts do."""


def partition(roots: tuple[Node, ...]) -> dict[Node, tuple[Node, ...]]:
    """The parts into which the graph beneath `roots` falls: the node at which each begins -> those
    of other parts at which it ends.

    A part begins at each root, and at each node that several parts lead to. So every node is in one
    part, and what all histories of an epoch need grows with its graph. Up to `FEW` roots have parts
    that overlap, and so have all where several parts lead to one user-written derivative, which has
    to be there once.
    """
    if len(roots) <= FEW:
        return dict.fromkeys(roots, ())
    found: dict[Node, tuple[Node, ...]] | None = roots[0].memo.get(("parts", roots))
    if found is None:
        parts = _parts(roots)
        found = dict.fromkeys(roots, ()) if any(map(is_call, parts)) else parts
        roots[0].memo["parts", roots] = found
    return found


def _parts(roots: tuple[Node, ...]) -> dict[Node, tuple[Node, ...]]:
    ends: dict[Node, dict[Node, None]] = {root: {} for root in roots}
    readers: dict[Node, dict[Node, None]] = {root: {} for root in roots}  # parts that lead to it
    for node in reversed(autodiff.differentiable(roots)):  # users first
        of = readers.get(node)
        if of is None or node.op is ops.variable:  # there each part ends
            continue
        if node in ends or len(of) > 1:
            for part in of:
                ends[part][node] = None
            ends.setdefault(node, {})
            of = {node: None}
        for o in node.operands:
            if o.requires_grad:
                readers.setdefault(o, {}).update(of)
    return {n: tuple(own) for n, own in ends.items()}


def inside(root: Node, stops: tuple[Node, ...]) -> frozenset[Node]:
    """The nodes that a gradient of `root` can reach before it ends at `stops`."""
    if not stops:
        return differentiable(root)
    found = root.memo.get(("inside", stops))
    if found is None:
        found = frozenset(autodiff.differentiable([root], stops)).difference(stops)
        root.memo["inside", stops] = found
    return found


def differentiable(root: Node) -> frozenset[Node]:
    """The nodes that a gradient of `root` can reach, including `root`.

    Nodes behind a `detach` aren't among them. `root` reads them, but a backward pass neither
    reaches nor frees them.
    """
    found = root.memo.get("differentiable")
    if found is None:
        found = root.memo["differentiable"] = frozenset(autodiff.differentiable([root]))
    return found


def is_call(node: Node) -> bool:
    """Whether a node stands for a call with a user-written derivative."""
    return node.op.calls_user


def is_call_output(node: Node) -> bool:
    """Whether a node is an output of a call with a user-written derivative."""
    return bool(node.operands) and is_call(node.operands[0])
