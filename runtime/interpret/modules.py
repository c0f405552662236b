"""Modules of generated Triton source. They have real files, as Triton reads a kernel's text
back."""

from __future__ import annotations

import functools
import os
import sys
import threading
import types
from pathlib import Path
from typing import Any

from .. import cache

LOCK = threading.RLock()
"""Held while `triton.language` is patched, and while a kernel is compiled."""


_adopted: dict[str, Any] = {}


def adopt(sha: str, function: Any) -> None:
    """Remember the user's triton.JITFunction whose hash is `sha`."""
    _adopted[sha] = function


def adopted(sha: str) -> Any:
    """The user's function that was adopted under `sha`, or None."""
    return _adopted.get(sha)


@functools.cache
def load_source(sha: str, source: str) -> types.ModuleType:
    """The module with this text, from a file in the cache directory."""
    path = cache.store("triton", sha, source) or _uncached(sha, source)
    module = types.ModuleType(f"tilewright_kernel_{sha}")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    # The text at hand runs, not the file. The leading newline stands for the entry's first line.
    exec(compile(f"\n{source}", str(path), "exec"), module.__dict__)
    return module


def _uncached(sha: str, source: str) -> Path:
    """A file that lives as long as the process, for where the cache is off."""
    path = cache.private_folder() / f"k{sha}.py"
    fresh = path.with_suffix(f".{threading.get_ident()}")
    fresh.write_text(f"\n{source}", encoding="utf-8")
    os.replace(fresh, path)
    return path
