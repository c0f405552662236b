"""Files in PyTorch's format before 1.6: several pickles, then the storages.

The pickles hold a magic number, the protocol's version, facts about the machine, the object, and
the keys of its storages. Then follow, for each key, the number of elements in 8 bytes and the
elements.
"""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from .rebuilding import Loaded, UnpicklingError, loaded, revealed, storage_id
from .unpickling import Unpickler

MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001


class _Anything:
    """Stands for any object of a pickle during the search for its storages."""

    def __new__(cls, *args: Any, **options: Any) -> _Anything:
        return super().__new__(cls)

    def __init__(self, *args: Any, **options: Any):
        pass

    def __setstate__(self, state: Any) -> None:
        pass

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    def append(self, value: Any) -> None:
        pass

    extend = add = append


class _Bounded:
    """A file that limits reads to its size, whatever lengths its content claims."""

    def __init__(self, file: Any, end: int):
        self.file, self.end = file, end
        self.readline = file.readline

    def read(self, size: int) -> bytes:
        return self.file.read(min(size, self.end - self.file.tell()))


class _Scan(Unpickler):
    """Reads a pickle to find its storages, and builds only their types."""

    dispatch = dict(Unpickler.dispatch)

    def find_class(self, module: str, name: str) -> Any:
        if module in ("torch", "torch.storage") and name.endswith("Storage"):
            return super().find_class(module, name)
        return _Anything

    def load_build(self) -> None:
        self.stack.pop()

    dispatch[pickle.BUILD[0]] = load_build


def read_legacy(file: Any, path: Any, move: Callable[[str], str], weights_only: bool) -> Any:
    """The object in a file of the older format. EOFError for an empty file, RuntimeError for a torn
    one and for another number at its beginning, UnpicklingError for what no pickle begins with."""
    start = file.tell()
    size = file.seek(0, os.SEEK_END) - start
    file.seek(start)
    bounded = _Bounded(file, start + size)

    def plain() -> Any:
        return Unpickler(bounded, True, _no_storage).read(path)

    kind: type[Exception] = RuntimeError
    try:
        known = plain() == MAGIC
    except Exception:
        known = False
        file.seek(start)
        if file.read(2) != b"PK":
            kind = pickle.UnpicklingError if size else EOFError
    if not known:
        raise kind(
            f"load: {path!s} ({size} bytes) is not a complete file of torch.save: it has no zip "
            "directory at its end, nor the number that PyTorch's older format begins with. It was "
            f"torn while it was written or copied, or is of another kind{at_user_line()}"
        )
    version, facts = plain(), plain()
    if version != PROTOCOL or not isinstance(facts, dict):
        raise RuntimeError(
            f"load: {path!s} has version {version!r:.40} of the older format; {PROTOCOL} is "
            f"known{at_user_line()}"
        )
    swapped = bool(facts.get("little_endian", True)) != (sys.byteorder == "little")
    types: dict[Any, tuple[Any, str]] = {}

    def note(saved: Any) -> Any:
        if isinstance(saved, tuple) and saved[:1] == ("module",):
            return _Anything
        key, dtype, location = storage_id(saved, path)
        types[key] = dtype, location
        return _Anything()

    begin = file.tell()
    _Scan(bounded, True, note).read(path)
    keys = plain()
    if not isinstance(keys, list) or any(k not in types for k in keys):
        raise RuntimeError(f"load: {path!s} is damaged: its list of storages{at_user_line()}")
    found = _storages(file, path, start + size, keys, types, move, swapped)
    end = file.tell()
    file.seek(begin)

    def storage(saved: Any) -> Any:
        if isinstance(saved, tuple) and saved[:1] == ("module",) and len(saved) > 1:
            return saved[1]  # a class, with its source
        key, _dtype, _ = storage_id(saved, path)
        view = saved[5] if len(saved) == 6 else None
        if key not in found:
            raise RuntimeError(f"load: {path!s} is damaged: no storage {key!r}{at_user_line()}")
        return found[key] if view is None else _part(found[key], view, path)

    result = revealed(Unpickler(bounded, weights_only, storage).read(path), found.values())
    file.seek(end)
    return result


def _storages(
    file: Any,
    path: Any,
    end: int,
    keys: list[Any],
    types: dict[Any, tuple[Any, str]],
    move: Callable[[str], str],
    swapped: bool,
) -> dict[Any, Loaded]:
    """The storages from the file's position to `end`, in the order of `keys`."""
    found: dict[Any, Loaded] = {}
    for key in keys:
        dtype, location = types[key]
        item = 1 if dtype is None else dtype.itemsize
        count = int.from_bytes(file.read(8), "big" if swapped else "little")
        left = end - file.tell()
        if count * item > left:
            raise RuntimeError(
                f"load: {path!s} is damaged: a storage of {count * item} bytes where {left} are "
                f"left{at_user_line()}"
            )
        raw = np.frombuffer(bytearray(file.read(count * item)), dtype=np.uint8)
        found[key] = loaded(raw, dtype, move(location), swapped)
    return found


def _no_storage(saved: Any) -> Any:
    raise UnpicklingError("a storage where none can be")


def _part(storage: Loaded, view: Any, path: Any) -> Loaded:
    """A copy of a part of a storage, for a view as old versions of PyTorch saved it."""
    if not isinstance(view, tuple) or len(view) != 3:
        raise UnpicklingError(f"load: {path!s} refers to no storage: {view!r:.80}{at_user_line()}")
    _, offset, size = view
    return Loaded(storage.array[offset : offset + size].copy(), storage.dtype, storage.device)
