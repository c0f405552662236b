"""Copies and pickles of tensors. Shared memory stays shared."""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.shape import Size
from tilewright.runtime import devices, meta

from .. import recording
from ..recording import epoch, views
from ..recording.states import Storage
from .arrays import array_of


def elements(t: Any) -> Any:
    """A copy of the elements of `t`, as an array; on the meta device, what stands for them."""
    if t.is_meta:
        return devices.get(meta.NAME).empty(t.shape, t.dtype)
    return np.array(np.asarray(t.detach().cpu()._array()).reshape(t.shape), order="C")


def _buffer(array: Any, device: str) -> Any:
    """Memory of a device with the elements of an array."""
    return array if device in ("cpu", meta.NAME) else devices.get(device).from_numpy(array)


def copied(t: Any) -> tuple[Any, DType, str]:
    """(buffer, dtype, device) of a copy."""
    name = t._typed()[2]
    return _buffer(elements(t), name), t.dtype, name


def deep_copied(t: Any, memo: dict[int, Any]) -> Any:
    """A copy of leaf `t`. Copies of tensors that share memory share memory too."""
    if t._storage is None:
        out = recording.blank()
        out._buffer, *rest = copied(t)
        out._aval = (t.shape, *rest)
        return out
    storage = memo.get(id(t._storage))
    if storage is None:
        _compute(t)
        storage = memo[id(t._storage)] = rebuild_storage(*_contents(t._storage))
    return _looking(storage, t._chain, t._typed())


def _compute(t: Any) -> None:
    """Let the memory of `t` have its value."""
    if t.is_meta:
        recording.flush()
    else:
        array_of(t)


def _contents(storage: Storage) -> tuple[Any, ...]:
    _, dtype, name = storage._aval  # type: ignore[misc]
    if name == meta.NAME:
        return storage._buffer, dtype, name
    return np.array(devices.get(name).to_numpy(storage._buffer), order="C"), dtype, name


def rebuild_storage(array: Any, dtype: DType, device: str) -> Storage:
    storage = Storage()
    storage._buffer = _buffer(array, device)
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
        return rebuild, (elements(t), t.dtype, str(t.device), wants, type(t)), t.__dict__ or None
    _compute(t)
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


def tensor_of(array: Any, dtype: DType, device: str) -> Any:
    """A tensor of what `elements` returned."""
    from ..functions import creation, from_data

    if device == meta.NAME:
        return creation.empty(array.shape, dtype=dtype, device=device)
    return from_data.tensor(array, dtype=dtype, device=device)


def rebuild(array: Any, dtype: DType, device: str, requires_grad: bool, cls: type) -> Any:
    """Unpickle a tensor with memory of its own."""
    t = tensor_of(array, dtype, device)
    if cls is not epoch.tensor_type:
        t = t.as_subclass(cls)
    return t.requires_grad_() if requires_grad else t
