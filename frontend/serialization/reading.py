"""load: files of `save` and of PyTorch."""

from __future__ import annotations

import importlib
import io
import mmap as mmap_module
import os
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilewright.ir.location import at_user_line

from .. import devices as device_module
from .._tensor import Tensor
from ..devices import device as Device
from .legacy import read_legacy
from .locations import restored
from .rebuilding import Loaded, loaded, revealed, storage_id
from .unpickling import Unpickler

if TYPE_CHECKING:
    from ..types import FileLike, MapLocation

MAPPINGS: dict[Literal["c", "r+"], int] = {
    "c": mmap_module.MAP_PRIVATE,
    "r+": mmap_module.MAP_SHARED,
}
mapping: Literal["c", "r+"] = "c"
"""How files are mapped into memory: NumPy's word for it."""
untold_is_big = False
"""Whether files that don't tell their byte order are big-endian."""
skips_data = False
"""Whether files are read and written without the elements of tensors."""


def load(
    f: FileLike,
    map_location: MapLocation = None,
    pickle_module: Any = None,
    *,
    weights_only: bool | None = None,
    mmap: bool | None = None,
    **pickle_load_args: Any,
) -> Any:
    """Read an object that `save` or PyTorch wrote to a path or a file object.

    map_location: the device of the tensors: a name, a device, a dict of names, or a function of
        (tensor, name) that returns the moved tensor. weights_only: build only tensors, containers
        and classes allowed by add_safe_globals. That is the default, unless a pickle_module is
        given: whoever names one wants all that it builds, as in PyTorch. mmap: map the file at a
        path into memory, so that tensors on the CPU are read when they are used; writes to them
        stay in memory.
    """
    if pickle_module is not None and weights_only:
        raise RuntimeError(
            f"Can not safely load weights when explicit pickle_module is specified{at_user_line()}"
        )
    only = pickle_module is None if weights_only is None else weights_only
    if hasattr(f, "read"):
        if mmap:
            raise ValueError(
                f"f must be a file path in order to use the mmap argument{at_user_line()}"
            )
        return _read(f, getattr(f, "name", "the file object"), map_location, only)
    path = os.fspath(f)
    with open(path, "rb") as file:
        memory = None
        if mmap:
            if not is_zip(file):
                raise RuntimeError(
                    "mmap can only be used with files saved with "
                    f"`torch.save(_use_new_zipfile_serialization=True)`, and {path!s} is none"
                    f"{at_user_line()}"
                )
            memory = np.asarray(np.memmap(path, np.uint8, mapping))
        return _read(file, path, map_location, only, memory)


def _with_places(file: Any) -> Any:
    """A file in which one can go back: what a stream has is read at once."""
    is_stream = hasattr(file, "seekable") and not file.seekable()
    return io.BytesIO(file.read()) if is_stream else file


def _read(
    file: Any, path: Any, map_location: Any, weights_only: bool, memory: np.ndarray | None = None
) -> Any:
    file = _with_places(file)
    start = file.tell()
    zipped = is_zip(file)
    file.seek(start)
    move = mover(map_location)
    if zipped:
        result = _read_archive(file, path, move, weights_only, memory)
    else:
        result = read_legacy(file, path, move, weights_only)
    if not callable(map_location) or isinstance(map_location, Device):
        return result
    return _moved_by(result, map_location)


def is_zip(file: Any) -> bool:
    """Whether a file is in the zip format."""
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


class Archive:
    """A zip file of torch.save: its records by name, and its storages.

    memory: the whole file as bytes, if its storages are to be read in place.
    """

    def __init__(
        self, file: Any, path: Any, move: Callable[[str], str], memory: np.ndarray | None = None
    ):
        self.path, self.move, self.memory = path, move, memory
        with _as_damage(path):
            self.zip = zipfile.ZipFile(file)
        self.names = set(self.zip.namelist())
        names = [n for n in self.names if n.endswith("/data.pkl") and n.count("/") == 1]
        if any(n.endswith("/archive_format") for n in self.names):
            raise RuntimeError(
                f"load: {path!s} is an archive of PyTorch's torch.export, whose graphs call ATen's "
                "operators: torch.save the state_dict there, or export to ONNX"
                f"{at_user_line()}"
            )
        if len(names) != 1:
            raise RuntimeError(
                f"load: {path!s} is a zip file, but not one of torch.save: it holds no data.pkl"
                f"{at_user_line()}"
            )
        self.root = names[0][: -len("data.pkl")]
        order = self.member("byteorder") if self.has("byteorder") else b""
        self.swapped = order == b"big" or (not order and untold_is_big)
        self.storages: dict[Any, Loaded] = {}

    @classmethod
    @contextmanager
    def opened(cls, f: Any, move: Callable[[str], str]) -> Iterator[Archive]:
        """The archive at a path or in a binary file."""
        with nullcontext(f) if hasattr(f, "read") else open(os.fspath(f), "rb") as file:
            path = getattr(f, "name", "the file object") if hasattr(f, "read") else os.fspath(f)
            archive = cls(_with_places(file), path, move)
            with archive.zip:
                yield archive

    def has(self, name: str) -> bool:
        return self.root + name in self.names

    def member(self, name: str) -> bytes:
        with _as_damage(self.path):
            return self.zip.read(self.root + name)

    def bytes_of(self, name: str) -> np.ndarray:
        """The bytes of a record, as memory that tensors may own."""
        if skips_data:
            return np.zeros(self.zip.getinfo(self.root + name).file_size, np.uint8)
        if self.memory is None:
            return np.frombuffer(bytearray(self.member(name)), dtype=np.uint8)
        with _as_damage(self.path):
            entry = self.zip.getinfo(self.root + name)
            if entry.compress_type != zipfile.ZIP_STORED:
                raise ValueError(f"{name} is compressed, so it can't be mapped into memory")
            # The record stands behind a header of 30 bytes, its name, and extra fields.
            lengths = self.memory[entry.header_offset + 26 : entry.header_offset + 30]
            begin = entry.header_offset + 30 + int(lengths.view("<u2").sum())
        found = self.memory[begin : begin + entry.file_size]
        return found if begin % 16 == 0 else found.copy()  # elements lie at multiples of their size

    def storage(self, saved_id: Any, folder: str = "data") -> Loaded:
        """The storage that a pickle refers to."""
        key, dtype, location = storage_id(saved_id, self.path)
        if (folder, key) not in self.storages:
            raw = self.bytes_of(f"{folder}/{key}")
            made = restored(raw, location)
            if made is not None:
                raw, location = made
            self.storages[folder, key] = loaded(raw, dtype, self.move(location), self.swapped)
        return self.storages[folder, key]

    def unpickle(self, data: bytes, weights_only: bool, classes: Any = None) -> Any:
        """The object of a pickle. classes: asked first for the class of (module, name)."""
        reader = Unpickler(io.BytesIO(data), weights_only, self.storage, classes)
        return revealed(reader.read(self.path), self.storages.values())


def _read_archive(
    file: Any, path: Any, move: Callable[[str], str], weights_only: bool, memory: Any = None
) -> Any:
    archive = Archive(file, path, move, memory)
    with archive.zip:
        if archive.has("constants.pkl"):
            return _read_torchscript(archive, weights_only)
        return archive.unpickle(archive.member("data.pkl"), weights_only)


def _read_torchscript(archive: Archive, weights_only: bool) -> Any:
    if weights_only:
        raise RuntimeError(
            "Cannot use ``weights_only=True`` with TorchScript archives passed to ``torch.load``. "
            f"Use torch.jit.load, whose state_dict() has the weights{at_user_line()}"
        )
    warnings.warn(
        "'torch.load' received a zip file that looks like a TorchScript archive dispatching to "
        "'torch.jit.load' (call 'torch.jit.load' directly to silence this warning)"
        f"{at_user_line()}",
        UserWarning,
        stacklevel=4,
    )
    return importlib.import_module("..jit.torchscript", __package__).read(archive)


def mover(map_location: Any) -> Callable[[str], str]:
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
