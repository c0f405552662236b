"""Generated text on disk, shared by processes, never trusted.

An entry is a file below the cache directory. Its first line is a comment that holds the hash of
what follows, so an entry can be a Python module that is imported from where it lies. Entries are
written to a fresh file and renamed into place; one that is torn, or that something else wrote, is
found by its hash, removed and made again. Failing to write never stops a run.

The first entry that a process writes makes it look how much there is; beyond LIMIT bytes those that
were not read for the longest time are removed.

TW_CACHE_DIR names the directory (default: $XDG_CACHE_HOME or ~/.cache, then tilewright/v1);
TW_CACHE=0 turns the cache off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import warnings
from pathlib import Path

FORMAT = "v1"
"""Counted up when entries change their form; what they hold is told apart by their keys."""
LIMIT = 1 << 30

_MARK = "# tilewright "
_warned = False
_pruned = False


def enabled() -> bool:
    return os.environ.get("TW_CACHE", "1").lower() not in ("0", "off", "false", "no")


def directory() -> Path:
    """Where entries lie; it need not exist."""
    chosen = os.environ.get("TW_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "tilewright" / FORMAT


def digest(text: str) -> str:
    """A key made of any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def path_of(kind: str, key: str, suffix: str = ".py") -> Path:
    """Where the entry of (kind, key) lies. kind: one word, such as `triton`; key: a `digest`."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"expected a word and a hexadecimal key, got {kind!r} and {key!r}")
    # A module's name can't begin with a digit.
    return directory() / kind / key[:2] / f"k{key}{suffix}"


def _header(content: bytes) -> bytes:
    return f"{_MARK}{hashlib.sha256(content).hexdigest()}\n".encode()


def load(kind: str, key: str) -> str | None:
    """The text stored under (kind, key); None if there is none that can be trusted."""
    content = _load(path_of(kind, key))
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        _discard(path_of(kind, key))
        return None


def load_bytes(kind: str, key: str) -> bytes | None:
    """As `load`, for what `store_bytes` wrote."""
    return _load(path_of(kind, key, ".bin"))


def _load(path: Path) -> bytes | None:
    if not enabled():
        return None
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError:
        _discard(path)
        return None
    header, _, content = whole.partition(b"\n")
    if header + b"\n" != _header(content):
        _discard(path)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # it was of use today
    return content


def store(kind: str, key: str, text: str) -> Path | None:
    """Writes the text, unless it is there already; its path, or None if it can't be kept."""
    return _store(path_of(kind, key), text.encode())


def store_bytes(kind: str, key: str, content: bytes) -> Path | None:
    """As `store`, for bytes such as object code."""
    return _store(path_of(kind, key, ".bin"), content)


def _store(path: Path, content: bytes) -> Path | None:
    if not enabled():
        return None
    whole = _header(content) + content
    _prune_once()
    try:
        if _holds(path, whole):
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(whole)
            os.replace(fresh, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(fresh)
            raise
    except OSError as error:
        _warn(error)
        return None
    return path


def _prune_once() -> None:
    global _pruned
    if not _pruned:
        _pruned = True
        prune()


def prune(limit: int | None = None) -> None:
    """Removes entries until at most `limit` bytes (LIMIT) are left, those read last being kept."""
    root, most = directory(), LIMIT if limit is None else limit
    entries = []
    for kind in _kinds(root):
        for path in (root / kind).glob("??/k*"):
            with contextlib.suppress(OSError):
                about = path.stat()
                entries.append((about.st_mtime_ns, about.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= most:
        return
    for _, size, path in sorted(entries):
        _discard(path)
        total -= size
        if total <= most // 4 * 3:  # so that this isn't done again soon
            return


def clear(kind: str | None = None) -> None:
    """Removes every entry, or those of one kind."""
    root = directory()
    for folder in [kind] if kind else _kinds(root):
        shutil.rmtree(root / folder, ignore_errors=True)


def _kinds(root: Path) -> list[str]:
    """The folders of ours in the cache directory, which a user may share with other things."""
    try:
        return [p.name for p in root.iterdir() if p.is_dir() and any(p.glob("??/k*"))]
    except OSError:
        return []


def _holds(path: Path, whole: bytes) -> bool:
    try:
        return path.read_bytes() == whole
    except OSError:
        return False


def _discard(path: Path) -> None:
    with contextlib.suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _warn(error: OSError) -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            f"tilewright can't write its cache in {directory()} ({error}): generated code is made "
            "anew in each process. Set TW_CACHE_DIR to a writable directory, or TW_CACHE=0",
            RuntimeWarning,
            stacklevel=3,
        )
