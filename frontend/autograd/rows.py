"""Sparse gradients of dense tensors: of tables whose rows are taken with `sparse=True`.

Within a pass such a gradient is a node, `ops.sum_rows` or a sum of them. Where it arrives at a
tensor or a hook it becomes a sparse tensor, of the node's operands.
"""

from __future__ import annotations

from typing import Any

from tilewright.ir import ops
from tilewright.ir.node import Node

from .. import recording
from ..recording import compounds


def of_rows(g: Node) -> bool:
    """Whether a gradient is sparse."""
    if g.op is not ops.add:
        return g.op is ops.sum_rows
    return _terms(g) is not None


def _terms(g: Node) -> list[Node] | None:
    """The sparse gradients that `g` is the sum of; None if a term is dense.

    The last term is looked at first, so that a long sum of dense ones costs one look.
    """
    found, stack = [], [g]
    while stack:
        node = stack.pop()
        if node.op is ops.add:
            stack.extend(node.operands)
        elif node.op is ops.sum_rows:
            found.append(node)
        else:
            return None
    return found[::-1]


def as_tensor(g: Node) -> Any:
    """A gradient as a tensor, sparse if it is."""
    terms = _terms(g)
    if terms is None:
        return recording.wrap(g)
    compounds.gradients.are_sparse = True
    rows, index = ([t.operands[i] for t in terms] for i in (0, 1))
    values, at = (p[0] if len(p) == 1 else ops.cat(p, 0) for p in (rows, index))
    return compounds.sparse().of_rows(*recording.wrap_all([values, at]), g.shape)


def as_node(g: Any) -> Node:
    """The node of a gradient, which may be a sparse tensor of rows."""
    if not compounds.is_compound(g):
        return recording.resolve(g)
    values, at = recording.resolve_all([g._elements, g._at.reshape(-1)])
    return ops.sum_rows(values, at, g.shape[0])


def accumulated(held: Any, g: Any) -> Any:
    """The sum of the gradient that a tensor has and another one, of which one is sparse."""
    if held is None:
        return g
    with recording.grad_mode(False):
        if not compounds.is_compound(held):
            return held.add_(g)
        return held._become(held + g) if compounds.is_compound(g) else g + held
