"""Memory that processes share: forked ones, and those that a queue or a new process tells of it."""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line

from .. import recording
from ..functions import from_data, shapes
from ..recording import epoch
from .arrays import array_of


class _Shared(mmap.mmap):
    """A mapping of memory that has no file, and its descriptor, which other processes may get."""

    descriptor = -1

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


def _mapped(descriptor: int, nbytes: int) -> _Shared:
    made = _Shared(descriptor, max(nbytes, 1))
    made.descriptor = descriptor
    return made


def _mapping(t: Any) -> mmap.mmap | None:
    """The mapping that holds the memory of `t`, if there is one."""
    memory: Any = (t if t._storage is None else t._storage)._buffer
    while memory is not None:
        if isinstance(memory, mmap.mmap):
            return memory
        memory = getattr(memory, "obj", None) or getattr(memory, "base", None)
    return None


def is_shared(t: Any) -> bool:
    """Whether other processes can see writes; a GPU's memory always counts as shared."""
    if t.is_cuda:
        return True
    array_of(t)
    return _mapping(t) is not None


def share_memory(t: Any) -> Any:
    """Move `t` to memory that processes share. Other processes get it by fork, as an argument of a
    process, or through a queue of `multiprocessing`; any other tensor goes to them by value."""
    if is_shared(t):
        return t
    source = array_of(t.detach())
    descriptor = os.memfd_create("tilewright", os.MFD_CLOEXEC)
    os.ftruncate(descriptor, max(source.nbytes, 1))
    memory = np.frombuffer(_mapped(descriptor, source.nbytes), np.uint8, source.nbytes)
    array = memory.view(source.dtype).reshape(source.shape)
    array[...] = source
    recording.set_data(t, over(array, t.dtype).detach())
    tell_pickler(type(t))
    return t


def tell_pickler(cls: type) -> None:
    """Have tensors travel to other processes by `_reduced`."""
    from multiprocessing.reduction import ForkingPickler

    for kind in {epoch.tensor_type, cls}:
        ForkingPickler.register(kind, _reduced)


def over(array: np.ndarray, dtype: DType) -> Any:
    """A tensor whose writes go to this memory at once, as others see it."""
    t = from_data.from_buffer(array, dtype)
    t._shared = recording.SharedMemory(keep=array)
    return t


def _reduced(t: Any) -> tuple[Any, ...]:
    """What another process makes `t` of: its memory, or, if that isn't shared, its values."""
    if t.requires_grad and not t.is_leaf:
        raise RuntimeError(
            "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd "
            "does not support crossing process boundaries.  If you just want to transfer the data, "
            "call detach() on the tensor before serializing (e.g., putting it on the queue)."
            f"{at_user_line()}"
        )
    mapping = None
    if not t.is_meta and not t.is_cuda:
        array_of(t)
        mapping = _mapping(t)
    if not isinstance(mapping, _Shared):
        reduced: tuple[Any, ...] = t.__reduce_ex__(4)
        return reduced
    from multiprocessing.reduction import DupFd

    nbytes = len(mapping)
    layout = shapes.layout_of(t)
    arguments = (DupFd(mapping.descriptor), nbytes, t.dtype, layout, t.requires_grad, type(t))
    return _rebuilt, arguments, t.__dict__ or None


def _rebuilt(
    descriptor: Any,
    nbytes: int,
    dtype: DType,
    layout: tuple[Sequence[int], Sequence[int], int],
    requires_grad: bool,
    cls: Any,
) -> Any:
    memory = np.frombuffer(_mapped(descriptor.detach(), nbytes), np.uint8)
    whole = memory[: nbytes - nbytes % dtype.itemsize].view(dtype.np)
    t: Any = shapes.as_strided(over(whole, dtype), *layout)
    tell_pickler(cls)
    t = t.detach() if cls is epoch.tensor_type else t.detach().as_subclass(cls)
    return t.requires_grad_() if requires_grad else t
