"""The places of results. To look there costs nothing where there are none."""

from __future__ import annotations

import os
from functools import cache as remembered
from pathlib import Path

from .. import cache


def default_path() -> Path:
    """The database: TW_TUNE_DB, or a file in the cache directory."""
    chosen = os.environ.get("TW_TUNE_DB")
    return Path(chosen) if chosen else cache.directory() / "tuning.sqlite"


def pinned() -> str | None:
    """The file that TW_TUNE_FILE names."""
    return os.environ.get("TW_TUNE_FILE") or None


@remembered
def exist() -> bool:
    """Whether there are any results. Each process looks once."""
    return pinned() is not None or default_path().exists()
