"""torch.export.pt2_archive: files of PyTorch's form for exported programs, as zips of records.

`torch.export.save` has a form of its own; these classes read and write the records of PyTorch's.
"""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path
from typing import Any

from tilewright.ir.location import at_user_line

from ...serialization.archive import PyTorchFileReader
from . import constants as constants
from .constants import (
    ARCHIVE_FORMAT_PATH,
    ARCHIVE_FORMAT_VALUE,
    ARCHIVE_VERSION_PATH,
    ARCHIVE_VERSION_VALUE,
)

__all__ = ["PT2ArchiveReader", "PT2ArchiveWriter", "is_pt2_package"]


class PT2ArchiveWriter:
    """Writes records of bytes, texts and files to a path or a binary stream. A context manager."""

    def __init__(self, archive_path_or_buffer: Any):
        is_path = isinstance(archive_path_or_buffer, (str, os.PathLike))
        self._top = Path(archive_path_or_buffer).stem if is_path else "archive"
        self._names: list[str] = []
        self.archive_file: zipfile.ZipFile | None = zipfile.ZipFile(archive_path_or_buffer, "w")

    def __enter__(self) -> PT2ArchiveWriter:
        return self

    def __exit__(self, *args: Any) -> None:
        self.close()

    def has_record(self, name: str) -> bool:
        return name in self._names

    def count_prefix(self, prefix: str) -> int:
        """How many records have names that begin with `prefix`."""
        return sum(name.startswith(prefix) for name in self._names)

    def write_bytes(self, name: str, data: bytes) -> None:
        if not isinstance(data, bytes):
            raise AssertionError(f"Expected bytes but got {type(data)}")
        if self.archive_file is None:
            raise ValueError(f"the archive was closed{at_user_line()}")
        self._names.append(name)
        self.archive_file.writestr(f"{self._top}/{name}", data)

    def write_string(self, name: str, data: str) -> None:
        if not isinstance(data, str):
            raise AssertionError(f"Expected string but got {type(data)}")
        self.write_bytes(name, data.encode())

    def write_file(self, name: str, file_path: str) -> None:
        """A file of the disk as a record."""
        self.write_bytes(name, Path(file_path).read_bytes())

    def write_folder(self, archive_dir: str, folder_dir: str) -> None:
        """All files below a folder of the disk, as records below `archive_dir`."""
        for path in sorted(Path(folder_dir).rglob("*")):
            if path.is_file():
                inner = path.relative_to(folder_dir).as_posix()
                self.write_file(f"{archive_dir.rstrip('/')}/{inner}", str(path))

    def close(self) -> None:
        """Write what says that this is an archive, and end it."""
        if self.archive_file is None:
            return
        self.write_string(ARCHIVE_FORMAT_PATH, ARCHIVE_FORMAT_VALUE)
        self.write_string(ARCHIVE_VERSION_PATH, ARCHIVE_VERSION_VALUE)
        self.write_string(".data/version", "6\n")
        self.write_string("byteorder", "little")
        self.archive_file.close()
        self.archive_file = None


class PT2ArchiveReader:
    """Reads the records of an archive. A context manager."""

    def __init__(self, archive_path_or_buffer: Any):
        self._file = PyTorchFileReader(archive_path_or_buffer)
        found = self._file.has_record(ARCHIVE_FORMAT_PATH) and self.read_string(ARCHIVE_FORMAT_PATH)
        if found != ARCHIVE_FORMAT_VALUE:
            raise AssertionError(f"Invalid archive format{at_user_line()}")

    def __enter__(self) -> PT2ArchiveReader:
        return self

    def __exit__(self, *args: Any) -> None:
        """The file is read whole by each call."""

    def read_bytes(self, name: str) -> bytes:
        return self._file.get_record(name)

    def read_string(self, name: str) -> str:
        return self.read_bytes(name).decode()

    def archive_version(self) -> int:
        try:
            return int(self.read_string(ARCHIVE_VERSION_PATH))
        except RuntimeError:
            return 0

    def get_file_names(self) -> list[str]:
        return self._file.get_all_records()


def is_pt2_package(serialized_model: bytes | str) -> bool:
    """Whether a file, or its bytes, is an archive of an exported program."""
    given = (
        io.BytesIO(serialized_model) if isinstance(serialized_model, bytes) else serialized_model
    )
    try:
        names = zipfile.ZipFile(given).namelist()
    except (zipfile.BadZipFile, OSError):
        return False
    tops = {name.partition("/")[0] for name in names}
    return any(f"{top}/{ARCHIVE_FORMAT_PATH}" in names for top in tops)
