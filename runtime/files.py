"""Files that are written as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
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
