"""torch.utils.file_baton: a file that one of several processes holds."""

from __future__ import annotations

import os
import time

__all__ = ["FileBaton"]


class FileBaton:
    """A lock: who makes the file holds it. wait_seconds: the time between two looks at it.
    warn_after_seconds: the waiting time after which a warning is printed."""

    def __init__(
        self,
        lock_file_path: str,
        wait_seconds: float = 0.1,
        warn_after_seconds: float | None = None,
    ):
        self.lock_file_path, self.wait_seconds = lock_file_path, wait_seconds
        self.warn_after_seconds = warn_after_seconds
        self.fd: int | None = None

    def try_acquire(self) -> bool:
        """Make the file; False if it is there."""
        try:
            self.fd = os.open(self.lock_file_path, os.O_CREAT | os.O_EXCL)
        except FileExistsError:
            return False
        return True

    def wait(self) -> None:
        """Wait until the file is gone."""
        start, warned = time.monotonic(), False
        while os.path.exists(self.lock_file_path):
            time.sleep(self.wait_seconds)
            waited = time.monotonic() - start
            if self.warn_after_seconds and waited > self.warn_after_seconds and not warned:
                import warnings

                warnings.warn(
                    f"Waited on lock file {self.lock_file_path!r} for {waited:.0f} seconds.",
                    stacklevel=2,
                )
                warned = True

    def release(self) -> None:
        """Remove the file."""
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None
        os.remove(self.lock_file_path)
