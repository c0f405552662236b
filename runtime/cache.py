"""Generated text and code on disk, shared by the processes of one user.

An entry is a file below the cache directory. Its first line is a comment with a hash of the entry's
name and content, so an entry can be a Python module that is imported in place. Entries are written
to a fresh file and renamed into place. The hash shows whether an entry is torn or foreign; such an
entry is removed and made again. A failed write never stops a run.

Some entries are machine code, so whoever can write here can run programs as this user. Folders are
private (mode 0700) whatever the umask says. An entry counts only if it is a plain file, not a
symbolic link, that belongs to this user and that nobody else can write to. If the directory belongs
to somebody else, or others can write to it, the process uses a private temporary directory instead.
Readers check the form of an entry, which may come from another version.

The first write of a process measures the cache. Beyond LIMIT bytes the least recently read entries
are removed.

TW_CACHE_DIR names the directory (default: $XDG_CACHE_HOME or ~/.cache, then tilewright/v2);
TW_CACHE=0 turns the cache off.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import hashlib
import os
import shutil
import stat
import tempfile
import warnings
from pathlib import Path

from . import debug

FORMAT = "v2"
"""Increased when the form of entries changes. Changes of content change the keys."""
LIMIT = 1 << 30

_MARK = "# tilewright "
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_warned = False
_pruned = False
_trusted: set[Path] = set()  # directories that passed the check


def enabled() -> bool:
    return os.environ.get("TW_CACHE", "1").lower() not in ("0", "off", "false", "no")


def directory() -> Path:
    """The directory of entries; it need not exist."""
    wanted = _wanted()
    if wanted in _trusted:
        return wanted
    reason = _reason_against(wanted)
    return wanted if reason is None else _instead(wanted, reason)


def _wanted() -> Path:
    chosen = os.environ.get("TW_CACHE_DIR")
    if chosen:
        return Path(chosen)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "tilewright" / FORMAT


def _reason_against(folder: Path) -> str | None:
    """Why a folder can't hold entries, or None."""
    try:
        found, target = os.lstat(folder), os.stat(folder)
    except OSError:
        return None  # it will be made, or there is no cache
    if not _is_mine(found) and not (stat.S_ISLNK(found.st_mode) and found.st_uid == 0):
        return "it belongs to another user"
    if not _is_mine(target):
        return "it belongs to another user"
    if stat.S_ISDIR(target.st_mode) and target.st_mode & _OTHERS_WRITE and os.name == "posix":
        return "other users can write to it"
    _trusted.add(folder)
    return None


def _is_mine(found: os.stat_result) -> bool:
    return os.name != "posix" or found.st_uid == os.geteuid()


@functools.cache
def _instead(wanted: Path, reason: str) -> Path:
    debug.say(
        f"the cache directory {wanted} isn't used, since {reason}: entries are made for this "
        "process alone"
    )
    return private_folder()


@functools.cache
def private_folder() -> Path:
    """A temporary folder that is removed when this process ends."""
    made, owner = Path(tempfile.mkdtemp(prefix="tilewright-")), os.getpid()

    def remove() -> None:
        if os.getpid() == owner:  # not in a fork
            shutil.rmtree(made, ignore_errors=True)

    atexit.register(remove)
    return made


def make_private(folder: Path) -> None:
    """Make a folder that only this user can read and write, and its missing parents. If this user's
    folder is already there, others lose access to it."""
    try:
        os.mkdir(folder, 0o700)
    except FileNotFoundError:
        make_private(folder.parent)
        return make_private(folder)
    except FileExistsError:
        found = os.lstat(folder)
        if not stat.S_ISDIR(found.st_mode) or not _is_mine(found):
            raise PermissionError(f"{folder} is no folder of this user") from None
        if stat.S_IMODE(found.st_mode) == 0o700:
            return None
    os.chmod(folder, 0o700)  # the umask may have removed bits of the mode
    return None


def digest(text: str) -> str:
    """A key for any text."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def path_of(kind: str, key: str, suffix: str = ".py") -> Path:
    """The path of the entry (kind, key). kind: one word, such as `triton`; key: a `digest`."""
    if not (kind.isidentifier() and key.isalnum()):
        raise ValueError(f"expected a word and a hexadecimal key, got {kind!r} and {key!r}")
    # A module's name can't begin with a digit.
    return directory() / kind / key[:2] / f"k{key}{suffix}"


def _header(path: Path, content: bytes) -> bytes:
    """The first line of an entry. It covers the name, so an entry under another name is foreign."""
    name = f"{path.parent.parent.name}/{path.name}\n"
    return f"{_MARK}{hashlib.sha256(name.encode() + content).hexdigest()}\n".encode()


def load(kind: str, key: str) -> str | None:
    """The text stored under (kind, key), or None without a trusted entry."""
    content = _load(path_of(kind, key))
    try:
        return None if content is None else content.decode()
    except UnicodeDecodeError:
        _discard(path_of(kind, key))
        return None


def load_bytes(kind: str, key: str) -> bytes | None:
    """As `load`, for entries of `store_bytes`."""
    return _load(path_of(kind, key, ".bin"))


def discard(kind: str, key: str, suffix: str = ".bin") -> None:
    """Remove an entry that its reader can't use."""
    _discard(path_of(kind, key, suffix))


def _load(path: Path) -> bytes | None:
    if not enabled():
        return None
    try:
        whole = _read(path, used=True)
    except FileNotFoundError:
        return None
    except OSError:
        _discard(path)
        return None
    header, _, content = whole.partition(b"\n")
    if header + b"\n" != _header(path, content):
        _discard(path)
        return None
    return content


def _read(path: Path, used: bool = False) -> bytes:
    """The bytes of a plain file that belongs to this user; OSError for anything else.

    used: update its modification time, which `prune` goes by.
    """
    handle = os.open(path, _READ | getattr(os, "O_BINARY", 0))
    with open(handle, "rb") as file:
        found = os.fstat(handle)
        others = found.st_mode & _OTHERS_WRITE and os.name == "posix"
        if not stat.S_ISREG(found.st_mode) or not _is_mine(found) or others:
            raise PermissionError(f"{path} is no file of this user alone")
        if used:
            with contextlib.suppress(OSError):
                os.utime(handle if os.utime in os.supports_fd else path)
        return file.read()


def store(kind: str, key: str, text: str) -> Path | None:
    """Write the text unless it is stored already. Returns its path, or None if writing fails."""
    return _store(path_of(kind, key), text.encode())


def store_bytes(kind: str, key: str, content: bytes) -> Path | None:
    """As `store`, for bytes such as object code."""
    return _store(path_of(kind, key, ".bin"), content)


def _store(path: Path, content: bytes) -> Path | None:
    if not enabled():
        return None
    whole = _header(path, content) + content
    _prune_once()
    try:
        if _holds(path, whole):
            return path
        _make_folder(path.parent)
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


def _make_folder(folder: Path) -> None:
    """Make a kind's folder. An existing cache directory keeps its mode."""
    root = folder.parents[1]
    if not root.is_dir():
        make_private(root)
    for each in (folder.parent, folder):
        make_private(each)


def _prune_once() -> None:
    global _pruned
    if not _pruned:
        _pruned = True
        prune()


def prune(limit: int | None = None) -> None:
    """Remove the least recently read entries until at most `limit` bytes (LIMIT) are left."""
    root, most = directory(), LIMIT if limit is None else limit
    entries = []
    for kind in _kinds(root):
        for path in (root / kind).glob("??/k*"):
            with contextlib.suppress(OSError):
                about = path.lstat()
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
    """Remove all entries, or all of one kind."""
    root = directory()
    for folder in [kind] if kind else _kinds(root):
        shutil.rmtree(root / folder, ignore_errors=True)


def _kinds(root: Path) -> list[str]:
    """The folders of entries in the cache directory, which may hold other folders too."""
    try:
        return [p.name for p in root.iterdir() if p.is_dir() and any(p.glob("??/k*"))]
    except OSError:
        return []


def _holds(path: Path, whole: bytes) -> bool:
    try:
        return _read(path) == whole
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
