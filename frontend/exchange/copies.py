"""Copies and pickles of tensors. Shared memory stays shared."""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size
from tilewright.runtime import devices

from .. import recording
from ..recording import epoch, views
from ..recording.epoch import Storage
from .arrays import array_of


def copied(t: Any) -> tuple[Any, DType, str]:
    """(buffer, dtype, device) of a copy."""
    name = t._typed()[2]
    array = np.array(np.asarray(t.detach().cpu()._array()).reshape(t.shape), order="C")
    buffer = array if name == "cpu" else devices.get(name).from_numpy(array)
    return buffer, t.dtype, name


def deep_copied(t: Any, memo: dict[int, Any]) -> Any:
    """A copy of leaf `t`. Copies of tensors that share memory share memory too."""
    if t._storage is None:
        out = recording.blank()
        out._buffer, *rest = copied(t)
        out._aval = (t.shape, *rest)
        return out
    storage = memo.get(id(t._storage))
    if storage is None:
        array_of(t)
        storage = memo[id(t._storage)] = rebuild_storage(*_contents(t._storage))
    return _looking(storage, t._chain, t._typed())


def _contents(storage: Storage) -> tuple[Any, ...]:
    name = storage._aval[2]  # type: ignore[index]
    array = devices.get(name).to_numpy(storage._buffer)
    return np.array(array, order="C"), storage._aval[1], name  # type: ignore[index]


def rebuild_storage(array: np.ndarray, dtype: DType, device: str) -> Storage:
    storage = Storage()
    storage._buffer = array if device == "cpu" else devices.get(device).from_numpy(array)
    storage._aval = (Size(array.shape), dtype, device)
    storage._views = []
    return storage


def _looking(storage: Storage, chain: views.Chain | None, aval: Any) -> Any:
    out = recording.blank()
    out._storage, out._chain, out._aval = storage, chain, aval
    return out


def reduced(t: Any) -> tuple[Any, ...]:
    """The pickled form of `t`. Tensors of one pickle that share memory share it again when
    loaded."""
    wants = t.requires_grad and t.is_leaf
    if t._storage is None:
        array = np.array(t.detach().cpu()._array(), order="C")
        return rebuild, (array, t.dtype, str(t.device), wants, type(t)), t.__dict__ or None
    array_of(t)
    arguments = (t._storage, t._chain, t._typed(), wants, type(t))
    return rebuild_view, arguments, t.__dict__ or None


def reduced_storage(storage: Storage) -> tuple[Any, ...]:
    return rebuild_storage, _contents(storage)


copyreg.pickle(Storage, reduced_storage)  # recording itself knows nothing of files


def rebuild_view(
    storage: Storage, chain: views.Chain | None, aval: Any, requires_grad: bool, cls: type
) -> Any:
    """Unpickle a tensor that shares its memory."""
    t = _looking(storage, chain, aval)
    if cls is not epoch.tensor_type:
        t = t.as_subclass(cls)
    return t.requires_grad_() if requires_grad else t


def rebuild(array: np.ndarray, dtype: DType, device: str, requires_grad: bool, cls: type) -> Any:
    """Unpickle a tensor with memory of its own."""
    from ..functions import creation

    t = creation.tensor(array, dtype=dtype, device=device)
    if cls is not epoch.tensor_type:
        t = t.as_subclass(cls)
    return t.requires_grad_() if requires_grad else t
