"""The sizes of memory: `resize_` of tensors and of storages, and the whole memory of a tensor."""

from __future__ import annotations

import math
from sys import getrefcount
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, contiguous_strides
from tilewright.runtime import devices

from .. import recording
from ..functions import creation, shapes
from ..recording import epoch, inference, states, views


def whole(t: Any) -> Any:
    """The whole memory of `t`, as a tensor of one axis that shares it."""
    return _of_whole(recording.storage_of(t)).detach().view(-1)


def base(t: Any) -> Any:
    """The tensor of which `t` is a view: itself while it lives, otherwise one like it."""
    root = t._root
    if root is not None and root.depth:  # a view of detached memory
        return _detached_base(t, root)
    storage = t._storage
    first = None if storage._first is None else storage._first()
    return _of_whole(storage) if first is None or first._storage is not storage else first


def _detached_base(t: Any, root: Any) -> Any:
    """The tensor that was detached, of which `t` is a view."""
    chain = t._chain
    while len(chain.links) > root.depth:
        chain = chain.parent
    out = _of_whole(t._storage)
    out._chain, out._root, out._writes = chain, root, root._writes
    recording.resolve(out)  # finds its shape and dtype
    return out


def _of_whole(storage: Any) -> Any:
    """A tensor of all memory of a storage."""
    out: Any = object.__new__(epoch.tensor_type)
    node = storage._node
    out._storage, out._writes = storage, storage._writes
    out._aval = storage._aval if node is None else (node.shape, node.dtype, node.device or "cpu")
    return out


def _state(t: Any) -> Any:
    return t if t._storage is None else t._storage


class _Freed(RuntimeError):
    """A read of memory that `resize_(0)` of its storage has freed."""


_FREED = states.Failed(
    _Freed(
        "The tensor has a non-zero number of elements, but its data is not allocated: its storage "
        "was resized to 0 bytes. Resize the storage back before the tensor is used"
    )
)


def _is_freed(t: Any) -> bool:
    return _state(t)._buffer is _FREED


def is_resizable(t: Any) -> bool:
    """Whether NumPy doesn't see the memory of `t`."""
    shared = _state(t)._shared
    return shared is None or bool(shared.released())


def room(t: Any) -> int:
    """The bytes of the memory that `t` looks at."""
    if _is_freed(t):
        return 0
    shape, dtype, _ = t._typed() if t._storage is None else _of_whole(t._storage)._aval
    return int(math.prod(shape)) * int(dtype.itemsize)


def resize_storage(t: Any, nbytes: int) -> None:
    """Give the memory of `t` another size. What both sizes have is kept, new bytes are zero.

    With 0 bytes the memory is freed, and comes back with its former size. RuntimeError for memory
    that NumPy sees, and for any other size where several tensors look at it.
    """
    if nbytes == room(t):
        return
    recording.flush()
    storage = t._storage
    alone = storage is None or getrefcount(storage) == 3  # the field, the name, the argument
    state = _state(t)
    if not is_resizable(t):
        raise RuntimeError(
            f"Trying to resize storage that is not resizable, from {room(t)} to {nbytes} bytes: "
            f"NumPy sees its memory{at_user_line()}"
        )
    shape, dtype, device = state._aval
    if nbytes == 0:
        state._buffer = _FREED
        return
    if state._buffer is _FREED:
        empty = np.zeros(tuple(shape), dtype.np)
        state._buffer = empty if device == "cpu" else devices.get(device).from_numpy(empty)
    if nbytes == room(t):
        return
    count, left = divmod(nbytes, dtype.itemsize)
    sizes, strides, start = shapes.layout_of(t)
    if not alone or left or count < start + views.span(sizes, strides):
        raise RuntimeError(
            f"resize_ of a storage from {room(t)} to {nbytes} bytes: it must be a whole number of "
            f"elements, all that the tensor shows, and no other tensor may share it{at_user_line()}"
        )
    grown = creation.zeros(count, dtype=dtype, device=device)
    old = whole(t)
    kept = min(count, old.numel())
    grown[:kept] = old[:kept]
    recording.set_data(t, shapes.as_strided(grown, sizes, strides, start))


def resize(t: Any, shape: Size) -> None:
    """Let `t` show the first elements of its memory in another shape; the memory grows if it is too
    small (see `resize_storage`). A tensor of this shape keeps its strides."""
    if t.requires_grad:
        raise RuntimeError(f"cannot resize variables that require grad{at_user_line()}")
    if t.shape == shape:
        return
    inference.refuse_write(_state(t)._changes)
    start = t.storage_offset()
    needed = (start + shape.numel()) * t.element_size()
    if needed > room(t):
        resize_storage(t, needed)
    recording.set_data(t, shapes.as_strided(whole(t), shape, contiguous_strides(shape), start))
