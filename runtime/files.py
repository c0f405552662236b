"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from typing import IO, Any


@contextlib.contextmanager
def whole(path: Any) -> Iterator[IO[bytes]]:
    """A binary file that replaces the one at `path` when the block ends without an error.

    Only plain files are replaced. A symbolic link stays, and the file it points to is replaced.
    Devices and pipes get the bytes when they are complete.
    """
    if not is_plain(path):
        with tempfile.TemporaryFile() as file:
            yield file
            file.seek(0)
            with open(path, "wb") as other:
                shutil.copyfileobj(file, other)
        return
    target = os.path.realpath(path)
    folder, base = os.path.split(target)
    handle, fresh = tempfile.mkstemp(prefix=f".{base}.", dir=folder)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
        os.chmod(fresh, _mode(target))
        os.replace(fresh, target)
    except BaseException:
        os.unlink(fresh)
        raise


def is_plain(path: Any) -> bool:
    """Whether a path names a plain file, or nothing yet."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except FileNotFoundError:
        return True


def _mode(path: str) -> int:
    """The permissions that a file opened at this path would have."""
    try:
        return os.stat(path).st_mode & 0o777
    except OSError:
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask


def is_checkout() -> bool:
    """Whether the package lies where its sources may change."""
    folder = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    return os.path.exists(os.path.join(folder, "pyproject.toml"))


def fingerprint(paths: Iterable[str]) -> str:
    """A hash of the names and sizes of sources: these files and those in these folders. Reading
    them all would take as long as what is kept for them saves."""
    found, folders = [], []
    for path in paths:
        if os.path.isdir(path):
            folders.append(path)
        else:
            found.append(f"{os.path.basename(path)} {os.stat(path).st_size}")
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found.append(f"{entry.name} {entry.stat().st_size}")
                elif entry.is_dir() and not entry.name.startswith("_"):
                    folders.append(entry.path)
    return hashlib.sha256(" ".join(sorted(found)).encode()).hexdigest()[:32]
