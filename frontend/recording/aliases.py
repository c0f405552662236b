"""Nodes that compute the same as another one, for tensors whose gradients must be told apart."""

from __future__ import annotations

import itertools

from tilewright.ir import ops
from tilewright.ir.node import Node, grad_mode

from .epoch import given, hooked

CONTINUES = "continues"
"""The key of a node's memo for the node whose history it has beside a value of its own: the one
before a write without gradients, or the end that leads to the history of a view."""
NEW, ANOTHER = -1, 1 << 30
"""Numbers of aliases: of what is new to autograd, with views at lower ones; and above the second
one, those in results that are another tensor's, too."""


def another(node: Node) -> Node:
    """The node of a result that another tensor of the epoch has got already, so that a gradient
    reaches the tensor that was used."""
    count = given[node] = given[node] + 1
    known = node.memo.get("others")
    if known is None:
        known = node.memo["others"] = []
    if count > len(known):
        known.append(_computed_beside(node, ANOTHER + count))
    found: Node = known[count - 1]
    given.setdefault(found, 0)  # a call that is met again may ask for this one
    return found


def _computed_beside(node: Node, number: int) -> Node:
    """A node that computes the same as `node`."""
    *others, last = node.operands  # the first one of a Function's output is its call
    with grad_mode(True):
        own = node.instruction.of((*others, ops.alias(last, number)))
    if "call" in node.memo:
        own.memo.setdefault("call", node.memo["call"])
    return own


def own_node(node: Node) -> Node:
    """A node that computes the same as `node`, for a tensor with hooks. So they don't see the
    gradient that another call which computes the same on its way has."""
    copies = (_computed_beside(node, i) for i in itertools.count(1))
    return next(n for n in copies if n not in hooked)


def continuing(end: Node, value: Node) -> Node:
    """The node of a tensor with this value whose history is that of `end`."""
    with grad_mode(True):
        node = ops.with_value(end, ops.detach(value) if value.requires_grad else value)
    node.memo[CONTINUES] = end
    return node


def origin(node: Node) -> Node:
    """The node whose history a tensor with `node` has."""
    while CONTINUES in node.memo:
        node = node.memo[CONTINUES]
    return node
