"""Checks of parameters and samples against constraints.

A check raises ValueError at the call if the values are at hand, or cheap to compute: then it costs
no flush. Values that a gradient goes through, or that take much work, are usually the middle of a
training step. To read them would cut the step in two. So their check becomes part of the step
(`docs/design/recording.md`, Checks and errors), and the error is raised when its values are
computed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from .. import recording
from ..autograd import no_grad
from ..exchange.arrays import array_of
from ..recording.states import NO_BUFFER
from .constraints import Constraint

_CHEAP = (
    Kind.LEAF, Kind.CONSTANT, Kind.GENERATE, Kind.ELEMENTWISE, Kind.MOVEMENT, Kind.REDUCE,
    Kind.MARKER,
)  # fmt: skip
_NODES, _ELEMENTS = 24, 1 << 14
"""The largest graph that a check computes at once."""


def require(constraint: Constraint, value: Any, claim: str, shown: Callable[[], str]) -> None:
    """ValueError unless all elements of a tensor satisfy a constraint.

    claim: the error's text without values. shown: makes the text with values.
    """
    array = at_hand(value)
    with no_grad():
        if array is not None and constraint.takes_arrays:
            with np.errstate(all="ignore"):
                valid = constraint.check(array)
            fine = bool(np.all(np.asarray(valid)))
        elif array is not None or not _is_late(value):
            with recording.hold():
                fine = bool(constraint.check(value.detach()).all())
        else:
            recording.fallible_node_of(
                ops.require, constraint.check(value.detach()), f"ValueError: {claim}"
            )
            return
    if not fine:
        raise ValueError(f"{shown()}{at_user_line()}")


def at_hand(t: Any) -> np.ndarray | None:
    """The values of a tensor on the host, if nothing has to be computed for them."""
    node = t._node
    if t._typed()[2] != "cpu":
        return None
    if node is not None and (value := _constant(node)) is not None:
        return np.broadcast_to(value, t.shape)
    state = t if t._storage is None else t._storage
    if state._buffer.__class__ in NO_BUFFER:
        return None
    if state._node is None:
        return array_of(t) if node is None else None
    if not _is_leaf(state._node) or state._shared is not None:
        return None
    held = node, state._node
    try:  # the buffer has the values of a leaf in this epoch too
        t._node = state._node = None
        return array_of(t)
    finally:
        t._node, state._node = held if state is not t else (held[0], held[0])


def _is_leaf(node: Node) -> bool:
    if node.op is ops.variable:
        node = node.operands[0]
    return node.op is ops.leaf


def _constant(node: Node) -> Any:
    """The value of a node whose elements are one constant, else None."""
    while node.op.kind is Kind.MOVEMENT or node.op.kind is Kind.MARKER:
        if len(node.operands) != 1 or node.op is ops.pad_op:
            return None
        node = node.operands[0]
    return ops.constant_value(node) if node.op is ops.constant_op else None


def _is_late(t: Any) -> bool:
    """Whether the values of a tensor are for the end of the epoch to compute."""
    node = t._node
    if node is None:
        return False
    if node.requires_grad and node.op is not ops.variable:
        return True
    seen, stack, elements = {node}, [node], 0
    while stack:
        each = stack.pop()
        elements += each.shape.numel()
        if each.op.kind not in _CHEAP or len(seen) > _NODES or elements > _ELEMENTS:
            return True
        stack += [o for o in each.operands if o not in seen]
        seen.update(each.operands)
    return False
