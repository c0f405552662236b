"""The states of tensors and of the memory that they share."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from sys import getrefcount
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

if TYPE_CHECKING:
    from .histories import History
    from .references import OwnReference
    from .roots import Root
    from .views import Chain

Aval = tuple[Size, DType, str]


class State:
    """The state of a storage. A tensor that shares its memory with no other is its own storage.

    _node: its value in this epoch, or None if it hasn't been used yet.
    _buffer: its memory, once computed. _aval: shape, dtype and device of the buffer.
    _history: the graph that computed it in an earlier epoch, if a gradient may be needed.
    _changes: counts in-place writes, except those through `.data`. _rewrites: counts those.
    _place: its number among the epoch's leaves.
    """

    _node: Node | None = None
    _buffer: Any = None
    _aval: Aval | None = None
    _history: History | None = None
    _requires_grad = False
    _changes = _rewrites = 0
    _place = -1
    _shared: SharedMemory | None = None


class Storage(State):
    """Memory that several tensors share. `_views` are the tensors with a node in this epoch.

    _first: the tensor that had the memory to itself, weakly.
    _writes: counts in-place writes, except those through `.data`.
    _detached: its detached tensors, if it has a history (see roots.py).
    """

    _views: list[Handle]
    _first: OwnReference | None = None
    _writes = 0
    _detached: list[OwnReference] | None = None
    _leaf_owner: Handle | None = None  # the tensor that collects gradients, if it is a leaf


class Handle(State):
    """The state of a Tensor: memory of its own, or a storage and a chain of views of it.

    _writes: the count of writes of its root or storage when it was made.
    _root: the root of its history; None if it has its storage's history.
    _leaf: the tensor that collects the gradient of this view, if that isn't its storage's owner.
    _parent: the view that this view was taken of, where calls are computed at once.
    _is_taped: whether a call on the tape read this view or one of it, with a gradient.
    _meeting: the history of the view to which all such calls lead, if it has hooks.
    _moves: counts how often it was given other memory. _move_is_read: whether the last time was an
        assignment to `.data`, after which a backward pass reads its new value.
    """

    _storage: Storage | None = None
    _chain: Chain | None = None
    _writes = 0
    _root: Root | None = None
    _leaf: Handle | None = None
    _parent: Handle | None = None
    _meeting: History | None = None
    _is_taped = False
    _grad: Handle | None = None
    _hooks: dict[int, Callable[..., Any]] | None = None
    _post_hooks: dict[int, Callable[..., Any]] | None = None
    _grad_freed = False
    _grad_dtype: Any = NotImplemented  # that of `.grad`, if it isn't its own
    _moves = 0
    _move_is_read = False

    if TYPE_CHECKING:  # Tensor's attributes, for modules that know only Handle

        def __getattr__(self, name: str) -> Any: ...


class Failed:
    """Takes the place of a buffer whose computation failed."""

    def __init__(self, error: Exception):
        self.kind, self.args = type(error), error.args

    def error(self) -> Exception:
        return self.kind(*self.args)


NO_BUFFER = (type(None), Failed)  # classes that stand in the place of a buffer


class SharedMemory:
    """Memory that NumPy may see. Ops that read it take a snapshot.

    keep: the user's array that the tensor was made from; it counts as shared while somebody else
        refers to it. exported: a weak reference that dies with the last array that was handed out.
        One of the two is set.
    """

    def __init__(self, keep: Any = None, exported: weakref.ref[Any] | None = None):
        self.keep = keep
        self.exported = exported

    def released(self) -> bool:
        """Whether no outside array shows the memory any more."""
        if self.exported is not None:
            return self.exported() is None
        array = self.keep
        # `array`, `self.keep`, the state's `_buffer`, the caller's `buffer` and the argument.
        return array.base is None and getrefcount(array) <= 5


def part_from_read_only(state: Any) -> None:
    """Give a state that is about to be written memory of its own, if its array may only be read."""
    if state._shared is not None and not state._buffer.flags.writeable:
        state._buffer, state._shared = np.array(state._buffer, order="C"), None
