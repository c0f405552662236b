"""Roots: tensors whose history differs from that of their memory, as of detached tensors."""

from __future__ import annotations

import weakref
from sys import getrefcount
from typing import TYPE_CHECKING, Any

from tilewright.ir import node as graph
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .references import OwnReference

if TYPE_CHECKING:
    from .states import Handle, Storage


class Root:
    """The root of the history of a detached tensor, or of a leaf that shares its memory, and of
    their views.

    depth: the number of links to it in the chains of its views.
    own: a tensor with its history, made when a value with a gradient is written to it, as in `y =
        x.detach(); y.mul_(w)`; its value is that of the memory.
    leaf: the tensor that collects the gradient, if it is a leaf that requires one.
    _writes: counts writes through it and its views.
    """

    __slots__ = ("_writes", "depth", "leaf", "own")

    def __init__(self, depth: int):
        self.depth, self._writes = depth, 0
        self.own: Handle | None = None
        self.leaf: weakref.ref[Handle] | None = None

    def source(self) -> Handle | None:
        """The tensor that gets the gradients of its views, or None."""
        if self.own is not None:
            return self.own
        leaf = None if self.leaf is None else self.leaf()
        return leaf if leaf is not None and leaf._requires_grad else None


def join(v: Any, t: Any) -> None:
    """Give `v`, a view of `t`, the root of `t`. The leaf that collects its gradient lives as long
    as it does: the root itself has a weak reference, since the leaf refers to the root."""
    root = v._root = t._root
    if root.leaf is not None:
        v._leaf = t if t._leaf is None else t._leaf


FEWEST = 64
"""Storages with a history that have detached tensors, from which they are looked through."""
_MOST = 16
"""The detached tensors of a storage that are counted. With more it keeps its history."""
_watched: list[weakref.ref[Storage]] = []
_limit = FEWEST


def detach(v: Any, depth: int) -> None:
    """Make `v`, whose chain has `depth` links, a root of its own. What is left of a loss when only
    `loss.detach()` is kept needs no history, which would keep that of the whole step alive."""
    v._root = Root(depth)
    storage = v._storage
    node = storage._node
    has_history = storage._history or (node is not None and node.requires_grad)
    if storage._requires_grad or not has_history:
        return
    known = storage._detached
    if known is None:
        known = storage._detached = []
        _watched.append(weakref.ref(storage))
    if len(known) < _MOST:
        known.append(OwnReference(v))
    if len(_watched) >= _limit:
        _look_through()


def _look_through() -> None:
    """Drop the histories of storages that only detached tensors look at."""
    global _limit
    watched, _watched[:] = _watched[:], []
    for ref in watched:
        storage = ref()
        if storage is None:
            continue
        detached = [t for own in storage._detached or () if (t := own()) is not None]
        alone = len([t for t in detached if t._storage is storage])
        if storage._node is not None or getrefcount(storage) > 2 + alone:  # the name, the argument
            _watched.append(ref)
        else:
            storage._history = storage._detached = None
    _limit = max(FEWEST, 2 * len(_watched))


def source_of(t: Any) -> Handle | None:
    """The tensor whose history the view `t` takes from its root, or None."""
    root = t._root
    source = None if root is None else root.source()
    if source is None or source is t or any(v.detaches for v, _ in t._chain.links[root.depth :]):
        return None
    return source


def historied(t: Any) -> Any:
    """The tensor whose history `t` has: its root's own, if `t` is a detached tensor that a value
    with a gradient was written to. Views of `t` lead there, too."""
    root = t._root
    if root is None or root.own is None or len(t._chain.links) > root.depth:
        return t
    own = root.own
    return own if source_of(t) is own else t


def is_outdated(t: Any, base: Node) -> bool:
    """Whether the base of `t` was written to since a call made `t` as one of several views.

    With gradients that is an error, as in PyTorch.
    """
    chain = t._chain
    tracked = base.requires_grad if t._root is None else source_of(t) is not None
    if not tracked or t._writes == (t._root or t._storage)._writes:
        return False
    if graph.grad_enabled():
        raise RuntimeError(
            f"Output of {chain.multiple.name}() is a view and its base or another view of its base "
            "has been modified inplace. This view is the output of a function that returns "
            "multiple views. Such functions do not allow the output views to be modified inplace. "
            "Take the view again after the write, or write out of place"
            f"{at_user_line()}"
        )
    return True
