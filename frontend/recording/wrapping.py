"""Tensors of nodes, and when they are so many that the epoch ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.node import Node

from . import epoch, flushing, inference, threads
from .epoch import clock, handles
from .flushing import end_step
from .states import Aval

_new = object.__new__
_append = handles.append


def blank() -> Any:
    """A new tensor without node or memory, for the caller to fill in."""
    t = _new(epoch.tensor_type)
    if epoch.inferring:
        inference.mark_state(t)
    return t


def of_array(array: np.ndarray, aval: Aval) -> Any:
    """A new tensor with its value, which nothing of this epoch has read."""
    t = _new(epoch.tensor_type)
    if epoch.inferring:
        inference.mark_state(t)
    # Python reads what is the object's own in a quarter of the time of what is its class's.
    t._node = t._storage = t._shared = t._history = None
    t._requires_grad = False
    t._buffer, t._aval = array, aval
    return t


def wrap(node: Node) -> Any:
    """A new tensor that holds `node`."""
    threads.claim()
    t = _new(epoch.tensor_type)
    t._node = node
    _append(t)
    if len(handles) > clock.limit:
        overfull()
    return t


def of_constant(node: Node) -> Any:
    """A new tensor that holds a constant. The end of an epoch needn't find it: it has its value."""
    t = _new(epoch.tensor_type)
    t._node = node
    return t


def wrap_all(nodes: Sequence[Node]) -> list[Any]:
    """New tensors that hold `nodes`. A flush comes only after the last, as it would outdate the
    remaining nodes."""
    out = []
    for node in nodes:
        t = _new(epoch.tensor_type)
        t._node = node
        _append(t)
        out.append(t)
    if len(handles) > clock.limit:
        overfull()
    return out


def settle() -> None:
    """End the epoch if it has grown too large: after a block that held it, or after a write."""
    if len(handles) > clock.limit or clock.limit <= 0:
        overfull()


def overfull() -> None:
    clock.limit = clock.usual_limit
    end_step()


def check_bytes() -> None:
    """Make the next call end the epoch if much memory is held by the epoch alone."""
    dead = flushing.dead_leaf_bytes()
    clock.checked_bytes = clock.leaf_bytes + epoch.BYTES - dead
    if dead > epoch.BYTES and clock.limit > 0:
        clock.usual_limit, clock.limit = clock.limit, 0
