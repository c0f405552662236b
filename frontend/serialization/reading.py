"""load: files of `save` and of PyTorch."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line

from .. import devices as device_module
from .._tensor import Tensor
from ..devices import device as Device
from .legacy import read_legacy
from .rebuilding import Loaded, loaded, storage_id
from .unpickling import Unpickler

if TYPE_CHECKING:
    from ..types import DeviceLike, FileLike


def load(
    f: FileLike,
    map_location: Callable[[Any, str], Any] | DeviceLike | dict[str, str] | None = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read an object that `save` or PyTorch wrote to a path or a file object.

    map_location: the device of the tensors: a name, a device, a dict of names, or a function of
        (tensor, name) that returns the moved tensor. weights_only: build only tensors, containers
        and classes allowed by add_safe_globals (the default).
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
    read = _read_archive if _is_zip(file) else read_legacy
    file.seek(start)
    result = read(file, path, _mover(map_location), weights_only)
    if not callable(map_location) or isinstance(map_location, Device):
        return result
    return _moved_by(result, map_location)


def _is_zip(file: Any) -> bool:
    try:
        return zipfile.is_zipfile(file)
    except (ValueError, OSError):  # offsets at its end that point outside
        return False


_DAMAGE = (
    zipfile.BadZipFile, EOFError, KeyError, ValueError, OSError, NotImplementedError,
    OverflowError, struct.error, zlib.error,
)  # fmt: skip
"""Errors that zipfile raises for damaged files."""


@contextmanager
def _as_damage(path: Any) -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        raise RuntimeError(f"load: {path!s} is damaged: {error}{at_user_line()}") from error


def _read_archive(file: Any, path: Any, move: Callable[[str], str], weights_only: bool) -> Any:
    with _as_damage(path):
        archive = zipfile.ZipFile(file)
    with archive:
        names = [n for n in archive.namelist() if n.endswith("/data.pkl") and n.count("/") == 1]
        if len(names) != 1:
            raise RuntimeError(
                f"load: {path!s} is a zip file, but not one of torch.save: it holds no data.pkl"
                f"{at_user_line()}"
            )
        root = names[0][: -len("data.pkl")]

        def member(name: str) -> bytes:
            with _as_damage(path):
                return archive.read(root + name)

        swapped = root + "byteorder" in archive.namelist() and member("byteorder") == b"big"
        found: dict[Any, Loaded] = {}

        def storage(saved_id: Any) -> Loaded:
            key, dtype, location = storage_id(saved_id, path)
            if key not in found:
                raw = np.frombuffer(bytearray(member(f"data/{key}")), dtype=np.uint8)
                found[key] = loaded(raw, dtype, move(location), swapped)
            return found[key]

        return Unpickler(io.BytesIO(member("data.pkl")), weights_only, storage).read(path)


def _mover(map_location: Any) -> Callable[[str], str]:
    """A function from the device that a storage was saved on to the device to load it to."""
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
    """Replace each tensor in containers by function(tensor, 'cpu'), unless that is None."""
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
