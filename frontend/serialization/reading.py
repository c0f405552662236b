"""load: files of `save` and of PyTorch."""

from __future__ import annotations

import _codecs
import io
import os
import pickle
import zipfile
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.dtype import DType
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, contiguous_strides

from .. import creation, interchange
from .. import devices as device_module
from .._tensor import Tensor
from ..devices import device as Device
from .storages import STORAGES

_BaseUnpickler: Any = pickle._Unpickler  # type: ignore[attr-defined]  # the one written in Python


class _Loaded:
    """A storage of the file; the tensors that refer to it share its memory."""

    def __init__(self, array: np.ndarray, dtype: DType | None, device: str):
        self.array, self.dtype, self.device = array, dtype, device
        self.owner: Any = None  # a contiguous tensor of all of it

    def whole(self, dtype: DType) -> Any:
        """All of it as a 1-d tensor."""
        if self.owner is None:
            self.owner = creation._upload(self.array.view(dtype.np), dtype, self.device)
        return self.owner.detach().view(-1)


def _rebuild(
    storage: _Loaded,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool = False,
    hooks: Any = None,
    metadata: Any = None,
) -> Any:
    assert storage.dtype is not None, "a storage of bytes is rebuilt with a dtype"
    return _rebuild_any(storage, offset, size, stride, requires_grad, hooks, storage.dtype)


def _rebuild_any(
    storage: _Loaded,
    offset: int,
    size: tuple[int, ...],
    stride: tuple[int, ...],
    requires_grad: bool,
    hooks: Any,
    dtype: DType,
    metadata: Any = None,
) -> Any:
    flat = storage.array.view(dtype.np)
    size = tuple(int(s) for s in size)
    count = int(np.prod(size, dtype=np.int64))
    regular = tuple(stride) == contiguous_strides(size) or count <= 1
    if regular and offset == 0 and count == flat.size and storage.owner is None:
        # The usual case: a tensor with memory of its own.
        t = storage.owner = creation._upload(flat.reshape(size), dtype, storage.device)
    elif regular:
        t = storage.whole(dtype)[offset : offset + count].view(size)
    else:
        t = _strided(storage, dtype, offset, size, tuple(stride))
    return t.requires_grad_() if requires_grad else t


def _strided(
    storage: _Loaded, dtype: DType, offset: int, size: tuple[int, ...], stride: tuple[int, ...]
) -> Any:
    """A view with any strides: permuted if they allow it, else a copy."""
    order = sorted(range(len(size)), key=lambda i: (-stride[i], -size[i]))
    packed = tuple(size[i] for i in order)
    regular = contiguous_strides(packed)
    fits = all(size[i] == 1 or stride[i] == s for i, s in zip(order, regular, strict=True))
    count = int(np.prod(size, dtype=np.int64))
    if fits:
        base = storage.whole(dtype)[offset : offset + count].view(packed)
        return base.permute(*[order.index(i) for i in range(len(size))])
    array = interchange.strided(storage.array.view(dtype.np)[offset:], size, stride)
    return creation._upload(np.array(array, order="C"), dtype, storage.device)


def _rebuild_parameter(data: Any, requires_grad: bool, hooks: Any, *state: Any) -> Any:
    from ..nn.parameter import Parameter

    return Parameter(data, requires_grad)


class UnpicklingError(pickle.UnpicklingError):
    """A file holds what `load` refuses to build."""


_SAFE: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("torch._utils", "_rebuild_tensor_v3"): _rebuild_any,
    ("torch._utils", "_rebuild_parameter"): _rebuild_parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _rebuild_parameter,
    ("torch", "Size"): Size,
    ("torch", "device"): Device,
    ("collections", "OrderedDict"): OrderedDict,
    **{("builtins", t.__name__): t for t in (dict, list, tuple, set, frozenset, object)},
    ("builtins", "complex"): complex,
    ("builtins", "bytearray"): bytearray,
    ("builtins", "slice"): slice,
    ("collections", "Counter"): Counter,
    ("_codecs", "encode"): _codecs.encode,
    **{("torch", name): dtype for name, dtype in STORAGES.items()},
    ("torch", "UntypedStorage"): None,
    ("torch.storage", "UntypedStorage"): None,
    **{("torch", d.name): d for d in dtypes.ALL},
}
_allowed: dict[tuple[str, str], Any] = {}


def add_safe_globals(safe_globals: list[Any]) -> None:
    """Let load(weights_only=True) build these classes and call these functions."""
    for each in safe_globals:
        obj, path = each if isinstance(each, tuple) else (each, None)
        module, _, name = (path or f"{obj.__module__}.{obj.__qualname__}").rpartition(".")
        _allowed[module, name] = obj


def clear_safe_globals() -> None:
    _allowed.clear()


def get_safe_globals() -> list[Any]:
    return list(_allowed.values())


@contextmanager
def safe_globals(objects: list[Any]) -> Iterator[None]:
    """Inside the block load(weights_only=True) may build these classes too."""
    before = dict(_allowed)
    add_safe_globals(objects)
    try:
        yield
    finally:
        _allowed.clear()
        _allowed.update(before)


class _Unpickler(_BaseUnpickler):
    """Builds what is on the list, or anything if not `weights_only`."""

    dispatch = dict(_BaseUnpickler.dispatch)

    def __init__(self, file: Any, weights_only: bool, storage: Callable[[Any], Any]):
        super().__init__(file, encoding="utf-8")
        self.weights_only = weights_only
        self.storage = storage

    def load_build(self) -> None:
        """Set attributes: not those of classes and functions, which live on after the load."""
        kind = type(self.stack[-2])
        if self.weights_only and kind not in (OrderedDict, Counter, *_allowed.values()):
            raise UnpicklingError(
                f"Weights only load failed: the file sets attributes of a {kind.__name__}"
                f"{at_user_line()}"
            )
        super().load_build()

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        # `__builtin__` is what protocol 2 calls it.
        module = "builtins" if module == "__builtin__" else module
        for table in (_SAFE, _allowed):
            if (module, name) in table:
                return table[module, name]
        if self.weights_only:
            raise UnpicklingError(
                f"Weights only load failed: the file asks for {module}.{name}, which is not on the "
                "list of what may be built. If you trust its source, allow it with "
                f"torch.serialization.add_safe_globals([{name}]), or load with weights_only=False, "
                f"which can run any code the file holds{at_user_line()}"
            )
        if module == "torch" or module.startswith("torch."):
            module = "tilewright" + module[5:]
            if module.startswith("tilewright.nn.modules"):
                module = "tilewright.nn"
        return super().find_class(module, name)

    def persistent_load(self, saved_id: Any) -> Any:
        return self.storage(saved_id)


def load(
    f: Any,
    map_location: Any = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read what `save` (or PyTorch) wrote to a path or a file object.

    map_location: the device of the tensors: a name, a device, a dict of names, or a function of
    (tensor, name) that returns the tensor where it is to be. weights_only: build nothing but
    tensors, containers and what was allowed by add_safe_globals (the default).
    """
    only = True if weights_only is None else weights_only
    if hasattr(f, "read"):
        return _read(f, getattr(f, "name", "the file object"), map_location, only)
    with open(os.fspath(f), "rb") as file:
        return _read(file, os.fspath(f), map_location, only)


def _read(file: Any, path: Any, map_location: Any, weights_only: bool) -> Any:
    if not file.seekable():
        file = io.BytesIO(file.read())
    start = file.tell()
    if not zipfile.is_zipfile(file):
        file.seek(start)
        size = file.seek(0, os.SEEK_END) - start
        raise RuntimeError(
            f"load: {path!s} ({size} bytes) is not a complete file of torch.save: it has no zip "
            "directory at its end. It was torn while it was written or copied, or is of another "
            f"kind (PyTorch's format before 1.6 is not read){at_user_line()}"
        )
    try:
        with zipfile.ZipFile(file) as archive:
            return _read_archive(archive, path, map_location, weights_only)
    except (zipfile.BadZipFile, EOFError) as error:
        raise RuntimeError(f"load: {path!s} is damaged: {error}{at_user_line()}") from error


def _read_archive(
    archive: zipfile.ZipFile, path: Any, map_location: Any, weights_only: bool
) -> Any:
    names = [n for n in archive.namelist() if n.endswith("/data.pkl") and n.count("/") == 1]
    if len(names) != 1:
        raise RuntimeError(
            f"load: {path!s} is a zip file, but not one of torch.save: it holds no data.pkl"
            f"{at_user_line()}"
        )
    root = names[0][: -len("data.pkl")]
    order = "<"
    if root + "byteorder" in archive.namelist() and archive.read(root + "byteorder") == b"big":
        order = ">"
    found: dict[str, _Loaded] = {}
    move = _mover(map_location)

    def storage(saved_id: Any) -> _Loaded:
        kind, dtype, key, location, _ = saved_id
        if kind != "storage":
            raise UnpicklingError(f"load: {path!s} refers to an unknown kind of object: {kind}")
        if key not in found:
            raw = np.frombuffer(bytearray(archive.read(f"{root}data/{key}")), dtype=np.uint8)
            if dtype is not None:
                array = raw.view(dtype.np)
                if order == ">":
                    array = array.byteswap()
            else:
                array = raw
            found[key] = _Loaded(array, dtype, move(location))
        return found[key]

    data = archive.read(names[0])
    result = _Unpickler(io.BytesIO(data), weights_only, storage).load()
    return result if not callable(map_location) else _moved_by(result, map_location)


def _mover(map_location: Any) -> Callable[[str], str]:
    """From the device a storage was saved from to the one it is loaded to."""
    if map_location is None or (callable(map_location) and not isinstance(map_location, Device)):

        def keep(location: str) -> str:
            if map_location is not None:
                return "cpu"
            try:
                return device_module.resolve(location)
            except RuntimeError as error:
                raise RuntimeError(
                    f"Attempting to deserialize object on {location}, which is not available here. "
                    "Use torch.load with map_location=torch.device('cpu') to map your storages to "
                    f"the CPU. {error}"
                ) from None

        return keep
    if isinstance(map_location, dict):
        return lambda location: device_module.resolve(map_location.get(location, location))
    where = device_module.resolve(map_location)
    return lambda location: where


def _moved_by(obj: Any, function: Callable[..., Any]) -> Any:
    """Tensors in containers, each replaced by function(tensor, 'cpu') if that is a tensor."""
    if isinstance(obj, Tensor):
        moved = function(obj, "cpu")
        return obj if moved is None else moved
    if isinstance(obj, dict):
        for key in obj:
            obj[key] = _moved_by(obj[key], function)
        return obj
    if isinstance(obj, list):
        return [_moved_by(each, function) for each in obj]
    if isinstance(obj, tuple) and not hasattr(obj, "_fields"):
        return tuple(_moved_by(each, function) for each in obj)
    return obj
