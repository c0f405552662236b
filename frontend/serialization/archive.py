"""torch.PyTorchFileReader and torch._C.PyTorchFileWriter: the records of a saved file, by name."""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable
from typing import Any

from tilewright.ir.location import at_user_line

from ..exchange.storages import UntypedStorage

_VERSION = b"3\n"
_ALIGNMENT = 64  # of each record, so that a file in memory can be read in place


def put(archive: zipfile.ZipFile, name: str, content: Any, alignment: int = _ALIGNMENT) -> None:
    """Write a record. Its date is fixed, so that saving twice gives the same bytes."""
    entry = zipfile.ZipInfo(name, date_time=(1980, 1, 1, 0, 0, 0))
    # The content stands behind a header of 30 bytes, the name and the extra fields; sizes of large
    # records have a field of their own.
    large = 20 if len(content) * 1.05 > zipfile.ZIP64_LIMIT else 0
    at = archive.start_dir + 30 + len(name.encode()) + large
    padding = -(at + 4) % alignment
    entry.extra = b"FB" + padding.to_bytes(2, "little") + b"Z" * padding
    archive.writestr(entry, content)


def put_version(archive: zipfile.ZipFile, name: str) -> None:
    """Write the version of PyTorch's format, as the last record of a file."""
    put(archive, f"{name}/version", _VERSION)


class PyTorchFileWriter:
    """Writes records of a file in PyTorch's zip format, one after the other.

    file: a path, a binary stream, or a function that takes memory and its length.
    """

    def __init__(self, file: Any, compute_crc32: bool = True, storage_alignment: int = _ALIGNMENT):
        self._name = "archive"
        if isinstance(file, (str, os.PathLike)):
            self._name = os.path.splitext(os.path.basename(file))[0] or self._name
        elif not hasattr(file, "write"):
            file = _Calls(file)
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._alignment = storage_alignment
        self._written: set[str] = set()

    def archive_name(self) -> str:
        """The folder of all records."""
        return self._name

    def get_all_written_records(self) -> set[str]:
        return set(self._written)

    def write_record(self, name: str, data: Any, size: int) -> None:
        """Write the first `size` bytes of bytes, text or a storage."""
        if name in self._written:
            raise RuntimeError(f"Tried to serialize file twice: {name}{at_user_line()}")
        if isinstance(data, UntypedStorage):
            data = data._tensor.detach().cpu().numpy().tobytes()
        elif isinstance(data, str):
            data = data.encode()
        elif isinstance(data, int):
            raise TypeError(
                f"write_record(): 'data' must be bytes, str or a storage, not an address"
                f"{at_user_line()}"
            )
        self._written.add(name)
        put(self._zip, f"{self._name}/{name}", bytes(data)[:size], self._alignment)

    def write_end_of_file(self) -> None:
        """Write the version and the order of bytes, and close the file."""
        put_version(self._zip, self._name)
        if "byteorder" not in self._written:
            put(self._zip, f"{self._name}/byteorder", sys.byteorder.encode())
        self._zip.close()


class _Calls:
    """A stream that gives its bytes to a function."""

    def __init__(self, function: Callable[[Any, int], Any]):
        self._function = function

    def write(self, content: Any) -> int:
        size = memoryview(content).nbytes
        self._function(content, size)
        return size

    def flush(self) -> None:
        """Nothing is held back."""


class PyTorchFileReader:
    """Reads records of a file in PyTorch's zip format. name: a path or a binary stream."""

    def __init__(self, name: Any):
        self._zip = zipfile.ZipFile(name)
        self._top = self._zip.namelist()[0].partition("/")[0]

    def get_all_records(self) -> list[str]:
        return [name.partition("/")[2] for name in self._zip.namelist()]

    def has_record(self, name: str) -> bool:
        return f"{self._top}/{name}" in self._zip.namelist()

    def get_record(self, name: str) -> bytes:
        if not self.has_record(name):
            raise RuntimeError(
                f"PytorchStreamReader failed locating file {name}: file not found{at_user_line()}"
            )
        return self._zip.read(f"{self._top}/{name}")
