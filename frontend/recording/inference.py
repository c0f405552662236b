"""Inference tensors: those made in inference mode. They count no writes, so nothing may be saved of
them for a derivative, and writes to them are refused outside of the mode.

The count of writes of such a tensor is `UNTRACKED`, which stays itself. A call that made a tensor
doesn't ask for the mode: the tensors of a block are those that joined `handles` within it, and they
are marked when the block or its epoch ends, or when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from sys import getrefcount
from typing import Any

from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.op import Kind

from . import epoch, resolving
from .compounds import is_compound
from .derivations import read_by_vjp
from .epoch import handles, leaves, storages, windows
from .references import WALKED_COUNT

_SAVED = (
    "Inference tensors cannot be saved for backward. Please do not use Tensors created in "
    "inference mode in computation tracked by autograd. To work around this, you can make a clone "
    "to get a normal tensor and use it in autograd, or use `torch.no_grad()` instead of "
    "`torch.inference_mode()`."
)
_SAME = (Kind.MOVEMENT, Kind.CHECK)  # ops that give the elements of their first operand
_first = 0
"""The number of `handles` before the first one that isn't marked and was made in inference mode."""


class Untracked(int):
    """The count of writes of an inference tensor: zero, also after a write."""

    def __add__(self, writes: int) -> Untracked:
        refuse_write(self)
        return self


def refuse_write(count: Any) -> None:
    """RuntimeError for a write outside of inference mode to memory with this count of writes, if it
    is an inference tensor's."""
    if count.__class__ is Untracked and not epoch.inferring:
        raise RuntimeError(
            "Inplace update to inference tensor outside InferenceMode is not allowed. You can make "
            f"a clone to get a normal tensor before doing inplace update{at_user_line()}"
        )


UNTRACKED = epoch.untracked = Untracked()


def begin() -> None:
    """Enter inference mode, or begin an epoch in it."""
    global _first
    epoch.inferred = epoch.inferring = True
    _first = len(handles)


def mark() -> None:
    """Mark the tensors that this epoch has made in inference mode so far."""
    global _first
    if not epoch.inferring:
        return
    for t in handles[_first:]:
        if t._chain is None:  # a view is what its memory is
            mark_state(t)
            if t._storage is not None:
                mark_state(t._storage)
    _first = len(handles)


def mark_state(state: Any) -> None:
    state._changes = UNTRACKED


def end() -> None:
    """Leave inference mode. Its tensors get nodes of their own, so that a derivative that reads one
    is noticed."""
    mark()
    epoch.inferring = False
    for storage in windows:
        if is_untracked(storage):
            resolving.outdate(storage._views)
    alive = [t for t in handles if getrefcount(t) > WALKED_COUNT]
    for state in (*alive, *storages, *[state for state, _, _ in leaves if state is not None]):
        node = state._node
        if node is None or getattr(state, "_storage", None) is not None or not is_untracked(state):
            continue
        if not (node.requires_grad or node.op is ops.inference):
            resolving.set_node(state, node, ops.inference(node))
            resolving.outdate(getattr(state, "_views", ()))


def is_untracked(state: Any) -> bool:
    return state._changes.__class__ is Untracked


def is_inference(t: Any) -> bool:
    """Whether a tensor was made in inference mode, or is a view of such a tensor."""
    mark()
    if is_compound(t):
        t = t._elements
    return is_untracked(t._storage or t)


def version(t: Any) -> int:
    """The number of writes in place to the memory of a tensor; 0 for an inference tensor."""
    if t._chain is not None and t._chain.is_data:
        return t._root._writes  # type: ignore[no-any-return]
    return (t._storage or t)._changes  # type: ignore[no-any-return]


def refuse_kept(saved: Sequence[Any]) -> None:
    """RuntimeError if an inference tensor is among those that a user's function has saved."""
    if any(t is not None and is_inference(t) for t in saved):
        raise RuntimeError(_SAVED + at_user_line())


def refuse_saved(result: Node, given: Sequence[Any]) -> None:
    """RuntimeError if the derivative of `result`, which a call made of the nodes `given`, reads an
    inference tensor."""
    ends = {each for each in given if isinstance(each, Node)}
    seen, stack = set(ends), [result]
    while stack:
        node = stack.pop()
        if node in seen or not node.requires_grad:
            continue
        seen.add(node)
        if any(_is_marked(each) for each in read_by_vjp(node)):
            raise RuntimeError(_SAVED + at_user_line())
        stack.extend(node.operands)


def _is_marked(node: Node) -> bool:
    """Whether a node is the value of an inference tensor, or of a view of it."""
    while node.op is not ops.inference:
        if node.op.kind in _SAME:
            node = node.operands[0]
        elif node.op in ops.MARKERS and node.op is not ops.clone and node.op is not ops.saved:
            node = node.operands[ops.MARKERS[node.op]]
        else:
            return False
    return True
