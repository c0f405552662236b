"""Twins: tensors that share a node, as they compute the same."""

from __future__ import annotations

from typing import Any

from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, format_location

from .. import recording
from ..recording.roots import historied


def has_twin(node: Node, t: Any) -> bool:
    """Whether another tensor of this epoch shares `node` with `t`: interning makes one node of two
    tensors that compute the same, and where both were used their gradients can't be told apart."""
    t = historied(t)
    own = t._storage or t
    views = t._storage._views if t._storage is not None else ()  # some were made in earlier epochs
    others = [h for h in (*recording.handles, *views) if h._node is node and h is not t]
    return any(t._chain is not None or (h._storage or h) is not own for h in others)


def twins(node: Node) -> RuntimeError:
    """The error where the gradient of one of two twins is asked for."""
    return RuntimeError(
        "the gradient of this tensor can't be told from that of another one that was computed by "
        f"the same expression (at {format_location(node.loc)}); compute it once, or take this one "
        f"from a clone(){at_user_line()}"
    )
