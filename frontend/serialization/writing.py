"""save: writes objects and their tensors to a file."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, contiguous_strides
from tilewright.runtime import devices, files

from .. import recording
from .._tensor import Tensor
from ..devices import device as Device
from ..exchange.storages import TypedStorage, UntypedStorage
from ..functions import shapes
from ..functions.quantized import QuantizedDType, QuantizedTensor, packed, qscheme
from ..layouts import layout
from ..nn import Module
from ..recording.compounds import is_compound
from . import reading
from .archive import put, put_version
from .locations import tagged
from .naming import is_named, path_of, reduced
from .storages import QUANTIZED, STORAGE_OF

if TYPE_CHECKING:
    from ..types import FileLike

_BasePickler: Any = pickle._Pickler  # type: ignore[attr-defined]  # in pure Python


class Name:
    """A global of PyTorch's. The pickle gets only its name, so it need not exist here."""

    def __init__(self, module: str, name: str):
        self.module, self.name = module, name

    def __call__(self, *args: Any) -> Any:
        raise TypeError(f"{self.module}.{self.name} stands for a name in a file")


_REBUILD = Name("torch._utils", "_rebuild_tensor_v2")
_REBUILD_ANY = Name("torch._utils", "_rebuild_tensor_v3")
_REBUILD_QUANTIZED = Name("torch._utils", "_rebuild_qtensor")
_REBUILD_PARAMETER = Name("torch._utils", "_rebuild_parameter")
_UNTYPED = Name("torch.storage", "UntypedStorage")
_REBUILD_WITH_STATE = Name("torch._utils", "_rebuild_parameter_with_state")
_REBUILD_META = Name("torch._utils", "_rebuild_meta_tensor_no_storage")
_REBUILD_TYPED = Name("torch._tensor", "_rebuild_from_type_v2")
_REBUILD_SPARSE = Name("torch._utils", "_rebuild_sparse_tensor")
_REBUILD_NESTED = Name("torch.nested._internal.nested_tensor", "_rebuild_njt")
_NESTED = Name("torch.nested._internal.nested_tensor", "NestedTensor")
_TENSOR = Name("torch", "Tensor")
_SIZE = Name("torch", "Size")
_LAYOUT = Name("torch.serialization", "_get_layout")
_DEVICE = Name("torch", "device")


class Storage:
    """Memory of one dtype, as the pickle refers to it."""

    def __init__(self, name: str, key: str, device: str, count: int, array: np.ndarray):
        self.name, self.key, self.device, self.count = name, key, device, count
        self.array = array


class Pickler(_BasePickler):
    """Writes tensors by reference to storages, which it collects."""

    dispatch = dict(_BasePickler.dispatch)

    def __init__(self, file: Any, protocol: int):
        super().__init__(file, protocol)
        self.storages: dict[Any, Storage] = {}
        self.kept: list[Any] = []  # keeps storages alive, as ids tell them apart

    def persistent_id(self, obj: Any) -> Any:
        if isinstance(obj, UntypedStorage):
            found = self._storage_of(obj)
            count = found.array.nbytes
            return ("storage", _UNTYPED, found.key, found.device, count)
        if isinstance(obj, TypedStorage):
            obj = self._storage_of(obj)
        if isinstance(obj, Storage):
            module = "torch.storage" if obj.name == "UntypedStorage" else "torch"
            return ("storage", Name(module, obj.name), obj.key, obj.device, obj.count)
        return None

    def _save_name(self, obj: Name) -> None:
        self.write(pickle.GLOBAL + f"{obj.module}\n{obj.name}\n".encode())
        self.memoize(obj)

    dispatch[Name] = _save_name

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, QuantizedTensor):
            return self._reduce_quantized(obj)
        if isinstance(obj, Tensor):
            return self._reduce_compound(obj) if is_compound(obj) else self._reduce_tensor(obj)
        if isinstance(obj, layout):
            return _LAYOUT, (str(obj),)
        if isinstance(obj, Size):
            return _SIZE, (tuple(obj),)
        if isinstance(obj, Device):
            return _DEVICE, (obj.type,) if obj.index is None else (obj.type, obj.index)
        if isinstance(obj, Module):
            return reduced(obj) or NotImplemented
        return NotImplemented

    def _reduce_tensor(self, t: Any) -> Any:
        from ..nn.parameter import Parameter

        if isinstance(t, Parameter):
            args: Any = (t.detach(), t.requires_grad, OrderedDict())
            if t.__dict__:
                return _REBUILD_WITH_STATE, (*args, dict(t.__dict__))
            return _REBUILD_PARAMETER, args
        requires_grad = t.requires_grad and t.is_leaf
        if t.device.type == "meta":
            shape, stride = tuple(t.shape), tuple(t.stride())
            return _REBUILD_META, (_dtype_name(t.dtype), shape, stride, requires_grad)
        storage, strides, offset = self._memory(t.detach())
        shape = tuple(t.shape)
        args = (storage, offset, shape, tuple(strides), requires_grad, OrderedDict())
        function = _REBUILD
        if storage.name == "UntypedStorage":
            function, args = _REBUILD_ANY, (*args, _dtype_name(t.dtype))
        if t.__dict__ or type(t) is not Tensor:
            kind = _TENSOR if type(t) is Tensor else type(t)
            return _REBUILD_TYPED, (function, kind, args, dict(t.__dict__))
        return function, args

    def _reduce_quantized(self, q: QuantizedTensor) -> Any:
        codes = q._codes.detach()
        storage, strides, offset = self._memory(
            codes if q.dtype.per_byte == 1 else packed(q).detach()
        )
        if q.dtype.per_byte > 1:
            strides, offset = contiguous_strides(tuple(q.shape)), 0
        kind = next(name for name, dtype in QUANTIZED.items() if dtype is q.dtype)
        facts = (storage.key, storage.device, storage.count, storage.array)
        of_codes = Storage(kind, *facts)
        params: tuple[Any, ...] = (q._scale, q._zero_point)
        if q._axis is not None:
            params = (*params, q._axis)
        self.kept.append(params)
        params = (Name("torch", q.qscheme().name), *params)
        shape = tuple(q.shape)
        return _REBUILD_QUANTIZED, (
            of_codes, offset, shape, tuple(strides), params, False, OrderedDict(),
        )  # fmt: skip

    def _storage_of(self, obj: Any) -> Storage:
        """The memory of a storage object."""
        if isinstance(obj, UntypedStorage):
            flat = obj._tensor.detach()
            return self._memory(flat)[0]
        return self._memory(obj._untyped_storage._tensor.detach())[0]

    def _memory(self, plain: Any) -> tuple[Storage, Any, int]:
        """(storage, strides, offset) of a tensor without history."""
        self.kept.append(plain)
        value = plain._array()  # computed now
        state, name = plain._storage, plain._typed()[2]
        # A hook of a backward pass may save a tensor: then it has a value, and no memory yet.
        has_memory = state._buffer is not None
        whole = np.asarray(devices.get(name).to_numpy(state._buffer) if has_memory else value)
        strides: tuple[int, ...]
        retypes = plain._chain is not None and plain._chain.retypes
        if has_memory and whole.flags.c_contiguous and not retypes:
            _, strides, offset = shapes.layout_of(plain)
            owner: Any = state
        else:  # also memory that NumPy lent us
            whole = np.ascontiguousarray(value)
            strides, offset, owner = contiguous_strides(tuple(plain.shape)), 0, plain
        storage = self.storages.get(id(owner))
        if storage is None:
            kind = STORAGE_OF.get(plain.dtype, "UntypedStorage")
            count = whole.size if kind != "UntypedStorage" else whole.nbytes
            where = tagged(plain) or ("cpu" if name in ("cpu", "interpret") else name)
            storage = Storage(kind, str(len(self.storages)), where, count, whole)
            self.storages[id(owner)] = storage
            self.kept.append(owner)
        return storage, strides, offset

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
            return _REBUILD_TYPED, (_REBUILD_NESTED, _NESTED, (state,), {})
        parts = (*t._structure(), elements, Size(t.shape))
        self.kept.append(parts)
        return _REBUILD_SPARSE, (t.layout, (*parts, t._is_merged) if isinstance(t, COO) else parts)

    def save(self, obj: Any, save_persistent_id: bool = True) -> Any:
        if type(obj) is DType:  # a bare global, as PyTorch writes a dtype
            obj = _dtype_name(obj)
        elif isinstance(obj, (QuantizedDType, qscheme)):
            obj = _names.setdefault(("torch", obj.name), Name("torch", obj.name))
        elif is_named(obj):
            path = path_of(obj)
            obj = obj if path is None else _names.setdefault(path, Name(*path))
        return super().save(obj, save_persistent_id)


_names: dict[tuple[str, str], Name] = {}
_dtype_names: dict[DType, Name] = {}


def _dtype_name(dtype: DType) -> Name:
    found = _dtype_names.get(dtype)
    if found is None:
        found = _dtype_names[dtype] = Name("torch", dtype.name)
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
        written(obj, _written_to(f), "archive", pickle_protocol)
        return
    path = os.fspath(f)
    folder, base = os.path.split(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise RuntimeError(f"Parent directory {folder} does not exist.{at_user_line()}")
    with files.whole(path) as file:
        written(obj, file, os.path.splitext(base)[0] or "archive", pickle_protocol)


class _Stream:
    """A file object of which no more is asked than to write and to flush."""

    def __init__(self, file: Any):
        self._write, self.flush = file.write, file.flush

    def write(self, content: Any) -> int:
        self._write(content)
        return memoryview(content).nbytes


def _written_to(file: Any) -> Any:
    """A file object, or a stream to one that knows no place, whatever error it raises then."""
    try:
        file.seek(file.tell())
    except (AttributeError, OSError, NotImplementedError):
        return _Stream(file)
    return file


Storages = dict[Any, Storage]


def written(
    obj: Any,
    file: Any,
    name: str,
    protocol: int,
    more: Callable[[Storages], Mapping[str, bytes]] = lambda storages: {},
) -> None:
    """Write an archive to a file. more: its further records, which may refer to, and add to, the
    storages."""
    data = io.BytesIO()
    pickler = Pickler(data, protocol)
    pickler.dump(obj)
    records = {"data.pkl": data.getvalue(), "byteorder": b"little", **more(pickler.storages)}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for record, content in records.items():
            put(archive, f"{name}/{record}", content)
        for storage in pickler.storages.values():
            array = storage.array
            if array.dtype.byteorder == ">":
                array = array.astype(array.dtype.newbyteorder("<"))
            raw = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            raw = np.zeros_like(raw) if reading.skips_data else raw
            put(archive, f"{name}/data/{storage.key}", raw.data)
        put_version(archive, name)
