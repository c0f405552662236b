"""Where results are: a look that costs nothing where there are none."""

from __future__ import annotations

import os
from functools import cache as remembered
from pathlib import Path

from .. import cache


def default_path() -> Path:
    """TW_TUNE_DB, or a file in the cache directory."""
    chosen = os.environ.get("TW_TUNE_DB")
    return Path(chosen) if chosen else cache.directory() / "tuning.sqlite"


def pinned() -> str | None:
    """The file that TW_TUNE_FILE names."""
    return os.environ.get("TW_TUNE_FILE") or None


@remembered
def exist() -> bool:
    """Whether there are results of any kind. Looked for once by a process."""
    return pinned() is not None or default_path().exists()
