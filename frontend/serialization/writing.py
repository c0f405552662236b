"""save: writes objects and their tensors to a file."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, contiguous_strides
from tilewright.runtime import devices, files

from .. import recording
from .._tensor import Tensor
from ..devices import device as Device
from ..functions import shapes
from ..layouts import layout
from ..recording.compounds import is_compound
from .storages import STORAGE_OF

if TYPE_CHECKING:
    from ..types import FileLike

_VERSION = b"3\n"

_BasePickler: Any = pickle._Pickler  # type: ignore[attr-defined]  # in pure Python


class _Name:
    """A global of PyTorch's. The pickle gets only its name, so it need not exist here."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} stands for a name in a file")


_REBUILD = _Name("torch._utils", "_rebuild_tensor_v2")
_REBUILD_ANY = _Name("torch._utils", "_rebuild_tensor_v3")
_REBUILD_PARAMETER = _Name("torch._utils", "_rebuild_parameter")
_REBUILD_SPARSE = _Name("torch._utils", "_rebuild_sparse_tensor")
_REBUILD_TYPE = _Name("torch._tensor", "_rebuild_from_type_v2")
_REBUILD_NESTED = _Name("torch.nested._internal.nested_tensor", "_rebuild_njt")
_NESTED = _Name("torch.nested._internal.nested_tensor", "NestedTensor")
_LAYOUT = _Name("torch.serialization", "_get_layout")
_SIZE = _Name("torch", "Size")
_DEVICE = _Name("torch", "device")


class _Storage:
    """Memory of one dtype, as the pickle refers to it."""

    def __init__(self, name: str, key: str, device: str, count: int, array: np.ndarray):
        self.name, self.key, self.device, self.count = name, key, device, count
        self.array = array


class _Pickler(_BasePickler):
    """Writes tensors by reference to storages, which it collects."""

    dispatch = dict(_BasePickler.dispatch)

    def __init__(self, file: Any, protocol: int):
        super().__init__(file, protocol)
        self.storages: dict[Any, _Storage] = {}
        self.kept: list[Any] = []  # keeps storages alive, as ids tell them apart

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, _Storage):
            module = "torch.storage" if obj.name == "UntypedStorage" else "torch"
            return ("storage", _Name(module, obj.name), obj.key, obj.device, obj.count)
        return None

    def _save_name(self, obj: _Name) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[_Name] = _save_name

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, Tensor):
            return self._reduce_compound(obj) if is_compound(obj) else self._reduce_tensor(obj)
        if isinstance(obj, layout):
            return _LAYOUT, (str(obj),)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        if isinstance(obj, Device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        return NotImplemented

    def _reduce_tensor(self, t: Any) -> Any:
        from ..nn.parameter import Parameter

        if isinstance(t, Parameter):
            return _REBUILD_PARAMETER, (t.detach(), t.requires_grad, OrderedDict())
        requires_grad = t.requires_grad and t.is_leaf
        plain = t.detach()
        self.kept.append(plain)
        plain._array()  # computed now
        state = plain._storage
        name = state._aval[2]
        whole = np.asarray(devices.get(name).to_numpy(state._buffer))
        shape = tuple(plain.shape)
        strides: tuple[int, ...]
        if whole.flags.c_contiguous and not (plain._chain and plain._chain.retypes):
            _, strides, offset = shapes.layout_of(plain)
            owner: Any = state
        else:  # memory that NumPy lent us
            whole = np.ascontiguousarray(plain._array())
            strides, offset, owner = contiguous_strides(shape), 0, plain
        storage = self.storages.get(id(owner))
        if storage is None:
            kind = STORAGE_OF.get(t.dtype, "UntypedStorage")
            count = whole.size if kind != "UntypedStorage" else whole.nbytes
            where = "cpu" if name in ("cpu", "interpret") else name
            storage = _Storage(kind, str(len(self.storages)), where, count, whole)
            self.storages[id(owner)] = storage
            self.kept.append(owner)
        args: Any = (storage, offset, shape, tuple(strides), requires_grad, OrderedDict())
        if storage.name == "UntypedStorage":
            return _REBUILD_ANY, (*args, _dtype_name(t.dtype))
        return _REBUILD, args

    def _reduce_compound(self, t: Any) -> Any:
        """A sparse or nested tensor as PyTorch writes it. As there, a sparse one is no leaf that
        requires a gradient any more."""
        from ..nested.tensors import Nested
        from ..sparse.tensors import COO

        elements = t._elements.detach()
        if isinstance(t, Nested):
            offsets, lengths = t._structure()
            state = {
                "values": elements, "offsets": offsets, "lengths": lengths,
                "_ragged_idx": t._ragged_idx, "_metadata_cache": {},
                "requires_grad": t.requires_grad and t.is_leaf,
            }  # fmt: skip
            self.kept.append(state)
            return _REBUILD_TYPE, (_REBUILD_NESTED, _NESTED, (state,), {})
        parts = (*t._structure(), elements, Size(t.shape))
        self.kept.append(parts)
        return _REBUILD_SPARSE, (t.layout, (*parts, t._is_merged) if isinstance(t, COO) else parts)

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if type(obj) is DType:  # a bare global, as PyTorch writes a dtype
            obj = _dtype_name(obj)
        return super().save(obj, save_persistent_id)


_dtype_names: dict[DType, _Name] = {}


def _dtype_name(dtype: DType) -> _Name:
    found = _dtype_names.get(dtype)
    if found is None:
        found = _dtype_names[dtype] = _Name("torch", dtype.name)
    return found


def save(
    obj: Any,
    f: FileLike,
    pickle_module: Any = None,
    pickle_protocol: int = 2,
    _use_new_zipfile_serialization: bool = True,
) -> None:
    """Write an object with all its tensors to a path or a file object.

    A file at the path is replaced when all is written. Devices and pipes get the bytes then.
    """
    recording.flush()
    if hasattr(f, "write"):
        _write(obj, f, "archive", pickle_protocol)
        return
    path = os.fspath(f)
    folder, base = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.{at_user_line()}")
    with files.whole(path) as file:
        _write(obj, file, os.path.splitext(base)[0] or "archive", pickle_protocol)


def _write(obj: Any, file: Any, name: str, protocol: int) -> None:
    data = io.BytesIO()
    pickler = _Pickler(data, protocol)
    pickler.dump(obj)
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(_entry(f"{name}/data.pkl"), data.getvalue())
        archive.writestr(_entry(f"{name}/byteorder"), b"little")
        for storage in pickler.storages.values():
            array = storage.array
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            archive.writestr(_entry(f"{name}/data/{storage.key}"), raw.tobytes())
        archive.writestr(_entry(f"{name}/version"), _VERSION)


def _entry(name: str) -> zipfile.ZipInfo:
    # A fixed date, so that saving twice gives the same bytes.
    return zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
