"""The disk cache: what is torn or foreign is never used, and a failure to write stops nothing."""

from __future__ import annotations

import json
import os
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tilewright.runtime import cache

KEY = cache.digest("some kernel")
TEXT = "def kernel():\n    return 'ö'\n"


@pytest.fixture(autouse=True)
def own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TW_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TW_CACHE", raising=False)
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path


def test_store_and_load() -> None:
    assert cache.load("triton", KEY) is None
    path = cache.store("triton", KEY, TEXT)
    assert path is not None and path.suffix == ".py" and path.stem.isidentifier()
    assert cache.load("triton", KEY) == TEXT
    assert cache.load("numpy", KEY) is None
    assert cache.store("triton", KEY, TEXT) == path
    assert cache.store("triton", KEY, "") == path
    assert cache.load("triton", KEY) == ""


def test_an_entry_is_a_module() -> None:
    path = cache.store("triton", KEY, TEXT)
    assert path is not None
    scope: dict[str, object] = {}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), scope)
    assert callable(scope["kernel"])


@pytest.mark.parametrize("cut", [0, 1, 20, 90, -1])
def test_a_torn_entry_is_discarded(cut: int) -> None:
    path = cache.store("numpy", KEY, TEXT)
    assert path is not None
    whole = path.read_bytes()
    path.write_bytes(whole[:cut])
    assert cache.load("numpy", KEY) is None
    assert not path.exists()
    assert cache.store("numpy", KEY, TEXT) == path
    assert cache.load("numpy", KEY) == TEXT


@pytest.mark.parametrize("foreign", [b"print('hello')\n", b"\xff\xfe\x00", b"# tilewright 00\nx\n"])
def test_a_foreign_entry_is_discarded_and_rewritten(foreign: bytes) -> None:
    path = cache.path_of("numpy", KEY)
    path.parent.mkdir(parents=True)
    path.write_bytes(foreign)
    assert cache.load("numpy", KEY) is None
    assert not path.exists()
    path.write_bytes(foreign)
    assert cache.store("numpy", KEY, TEXT) == path
    assert cache.load("numpy", KEY) == TEXT


def test_a_directory_in_the_place_of_an_entry() -> None:
    path = cache.path_of("numpy", KEY)
    (path / "inside").mkdir(parents=True)
    assert cache.load("numpy", KEY) is None
    assert cache.store("numpy", KEY, TEXT) == path


def test_an_unwritable_directory_is_told_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    monkeypatch.setenv("TW_CACHE_DIR", str(blocked / "cache"))
    with pytest.warns(RuntimeWarning, match="TW_CACHE_DIR"):
        assert cache.store("numpy", KEY, TEXT) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.store("numpy", KEY, TEXT) is None
        assert cache.load("numpy", KEY) is None
        cache.clear()


def test_switched_off(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cache.store("numpy", KEY, TEXT)
    monkeypatch.setenv("TW_CACHE", "0")
    assert cache.load("numpy", KEY) is None
    assert cache.store("numpy", cache.digest("other"), TEXT) is None
    assert len(list(tmp_path.rglob("*.py"))) == 1


def test_clear_leaves_what_is_not_ours(tmp_path: Path) -> None:
    other = tmp_path / "mine" / "notes.txt"
    other.parent.mkdir()
    other.write_text("keep me")
    cache.store("numpy", KEY, TEXT)
    cache.store("triton", KEY, TEXT)
    cache.clear("numpy")
    assert cache.load("numpy", KEY) is None
    assert cache.load("triton", KEY) == TEXT
    cache.clear()
    assert cache.load("triton", KEY) is None
    assert other.read_text() == "keep me"


def test_directories(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TW_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache.directory().parent == tmp_path / "xdg" / "tilewright"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.directory().parent == tmp_path / ".cache" / "tilewright"


def test_keys_are_no_paths() -> None:
    for kind, key in (("..", KEY), ("numpy", "../../x"), ("numpy", "")):
        with pytest.raises(ValueError, match="expected a word"):
            cache.store(kind, key, TEXT)


# ---- what others could write is never used ---------------------------------------------------


def _entry(content: bytes = b"machine code") -> Path:
    path = cache.store_bytes("llvm", KEY, content)
    assert path is not None
    return path


def test_folders_and_files_are_this_users_alone(tmp_path: Path, run_python: Any) -> None:
    code = """
import os, sys
os.umask(int(sys.argv[1], 8))
from pathlib import Path
from tilewright.runtime import cache
for path in (cache.store_bytes("llvm", cache.digest("x"), b"code"), cache.private_folder()):
    while path != Path(sys.argv[2]) and path.parent != path:
        print(oct(path.stat().st_mode & 0o777))
        path = path.parent if path.is_relative_to(sys.argv[2]) else Path(sys.argv[2])
assert cache.load_bytes("llvm", cache.digest("x")) == b"code"
"""
    for umask in ("0", "22", "77"):
        root = tmp_path / umask
        out = run_python(code, umask, str(tmp_path), env={"TW_CACHE_DIR": str(root / "a" / "b")})
        # The file; its folder, that of its kind, the directory and those on the way; a private one.
        assert out.split() == ["0o600", *["0o700"] * 6]


def test_a_folder_that_others_could_see_is_closed(own_directory: Path) -> None:
    path = _entry()
    path.parent.chmod(0o777)
    path.unlink()
    assert _entry() == path
    assert path.parent.stat().st_mode & 0o777 == 0o700
    # The one that was named is the user's business, unless others could write there.
    own_directory.chmod(0o755)
    _entry()
    assert own_directory.stat().st_mode & 0o777 == 0o755


def test_a_file_of_another_user_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    _entry()
    assert cache.directory() in cache._trusted  # else it would be refused as a whole
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert cache.load_bytes("llvm", KEY) is None


def test_a_file_that_others_can_write_to_is_not_read() -> None:
    path = _entry()
    path.chmod(0o620)
    assert cache.load_bytes("llvm", KEY) is None
    assert not path.exists() and _entry() == path


@pytest.mark.parametrize("same", [True, False])
def test_a_symbolic_link_is_not_followed(tmp_path: Path, same: bool) -> None:
    path = _entry()
    planted = tmp_path / "planted"
    planted.write_bytes(path.read_bytes() if same else b"something else")
    path.unlink()
    path.symlink_to(planted)
    assert cache.load_bytes("llvm", KEY) is None
    assert not path.is_symlink() and planted.exists()
    path.symlink_to(planted)
    assert _entry() == path and not path.is_symlink()
    # Neither are folders that are links.
    elsewhere = tmp_path / "elsewhere"
    path.parent.rename(elsewhere)
    path.parent.symlink_to(elsewhere)
    cache._warned = True
    path.unlink()
    assert cache.store_bytes("llvm", KEY, b"machine code") is None
    assert list(elsewhere.iterdir()) == []


def test_a_pipe_in_the_place_of_an_entry() -> None:
    path = _entry()
    path.unlink()
    os.mkfifo(path)
    assert cache.load_bytes("llvm", KEY) is None
    assert _entry() == path and path.is_file()


def test_an_entry_in_the_place_of_another_is_foreign() -> None:
    other = cache.store_bytes("llvm", cache.digest("other"), b"other code")
    assert other is not None
    path = _entry()
    path.write_bytes(other.read_bytes())
    assert cache.load_bytes("llvm", KEY) is None


@pytest.mark.parametrize("how", ["writable", "foreign", "link"])
def test_a_directory_of_others_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    shared = tmp_path / "shared"
    monkeypatch.setenv("TW_CACHE_DIR", str(shared))
    monkeypatch.setenv("TW_DEBUG", "1")
    cache._instead.cache_clear()
    shared.mkdir()
    if how == "link":
        shared.rename(tmp_path / "target")
        shared.symlink_to(tmp_path / "target")
    if how == "writable":
        shared.chmod(0o777)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    private = cache.directory()
    assert private != shared and private.stat().st_mode & 0o777 == 0o700
    assert str(shared) in capsys.readouterr().err
    if how == "writable":
        path = _entry()
        assert path.is_relative_to(private)
        assert cache.load_bytes("llvm", KEY) == b"machine code"
    assert list(shared.iterdir()) == []


def test_no_cache_holds_objects() -> None:
    """A pickle runs code when it is read."""
    own = Path(cache.__file__).parent
    pickling = {
        path.name: path.read_text().count("import pickle")
        for path in own.rglob("*.py")
        if "pickle" in path.read_text() or "marshal" in path.read_text()
    }
    # These two talk to processes that they started, through pipes; the third says that it doesn't.
    assert set(pickling) <= {"offline.py", "users.py", "packed.py"}


STEP = """
import sys
import tilewright as tw
from tilewright.runtime.native import jit
tw.manual_seed(0)
layer = tw.nn.Conv2d(3, 4, 3)
out = layer(tw.ones(2, 3, 8, 8)).exp().cumsum(0).sum()
out.backward()
print(out.item(), layer.weight.grad.sum().item(), jit.statistics.compiled)
"""


def _rewritten(path: Path, change: Any) -> None:
    content = path.read_bytes().partition(b"\n")[2]
    made = change(content)
    path.write_bytes(cache._header(path, made) + made)


def _said(**changes: Any) -> Any:
    """A change of what an emitted kernel says, leaving the texts behind it alone."""

    def changed(content: bytes) -> bytes:
        line, _, rest = content.partition(b"\n")
        said = json.loads(line)
        for name, value in changes.items():
            (said if name in said else said["members"][0])[name] = value
        return b"\n".join([json.dumps(said).encode(), rest])

    return changed


WRONG: dict[str, Any] = {
    "text": lambda content: b"hello",
    "pickle": lambda content: pickle.dumps([1, 2]),
    "list": lambda content: b"[1, 2]\n",
    "none": _said(members=[]),
    "numbers": _said(members=[1]),
    "field": _said(checks=[]),
    "role": _said(words=[["error", None]]),
    "buffer": _said(words=[["buffer", 99]]),
    "size": _said(words=[["size", 2**63]]),
    "table": _said(words=[["table", 99]]),
    "word": _said(words=[["size", 1, 2]]),
    "words": _said(words=3),
    "float": _said(phases=[1.5]),
    "negative": _said(workspace=-1),
    "code": _said(code=99),
    "true": _said(code=False),
    "huge": _said(sizes=[10**9]),
    "short": _said(sizes=[]),
    "prepared": _said(prepared=[99]),
    "deep": lambda content: b"[" * 100_000,
    "entry": lambda content: content.replace(b"@kernel(", b"@colonel("),
}


def test_a_wrong_entry_with_a_right_hash_is_made_again(run_python: Any, tmp_path: Path) -> None:
    pytest.importorskip("llvmlite")
    env = {"TW_CACHE_DIR": str(tmp_path), "TW_CPU": "llvm"}
    cold = run_python(STEP, env=env).split()
    warm = run_python(STEP, env=env).split()
    assert warm[:2] == cold[:2] and int(warm[2]) == 0 < int(cold[2])
    emitted = sorted((tmp_path / "emitted").rglob("k*.bin"))
    before = {path: path.read_bytes() for path in emitted}
    assert len(emitted) > 3
    for start in range(0, len(WRONG), len(emitted)):
        for path, change in zip(emitted, list(WRONG.values())[start:], strict=False):
            _rewritten(path, change)
        assert run_python(STEP, env=env).split() == warm
        assert {path: path.read_bytes() for path in emitted} == before
    for path in (tmp_path / "llvm").rglob("k*.bin"):
        _rewritten(path, lambda content: b"no object code")
    again = run_python(STEP, env=env).split()
    assert again[:2] == cold[:2]
    assert run_python(STEP, env=env).split() == warm


HAMMER = """
import sys
from tilewright.runtime import cache
seen = 0
for i in range(300):
    key = cache.digest(str(i % 7))
    text = f"# entry {i % 7}\\n" * 2000
    found = cache.load("numpy", key)
    assert found is None or found == text, "a torn entry was trusted"
    seen += found is not None
    if i % 5 == 0:
        cache.path_of("numpy", key).unlink(missing_ok=True)
    assert cache.store("numpy", key, text) is not None
print(seen)
"""


def test_two_processes(run_python, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(run_python, HAMMER, env={"TW_CACHE_DIR": str(tmp_path)}) for _ in "ab"]
        assert all(int(job.result()) > 0 for job in jobs)
    assert not list(tmp_path.rglob("*.tmp"))


def test_the_cache_is_bounded(own_directory: Path) -> None:
    keys = [cache.digest(str(i)) for i in range(8)]
    for age, key in enumerate(keys):
        path = cache.store_bytes("llvm", key, bytes(1000))
        assert path is not None
        os.utime(path, (1000 + age, 1000 + age))
    other = own_directory / "notes.txt"
    other.write_text("somebody else's" * 1000)
    assert cache.load_bytes("llvm", keys[0]) is not None  # read last of all
    size = path.stat().st_size
    cache.prune(8 * size)
    assert all(cache.load_bytes("llvm", k) is not None for k in keys[1:2])
    os.utime(cache.path_of("llvm", keys[1], ".bin"), (1001, 1001))
    cache.prune(5 * size)
    left = [k for k in keys if cache.path_of("llvm", k, ".bin").exists()]
    assert left == [keys[0], *keys[6:]]
    assert other.exists()


def test_the_first_entry_of_a_process_prunes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "_pruned", False)
    monkeypatch.setattr(cache, "LIMIT", 100)
    for i in range(3):
        cache.store("numpy", cache.digest(str(i)), TEXT * 10)
    assert cache.load("numpy", cache.digest("0")) is not None
    monkeypatch.setattr(cache, "_pruned", False)
    cache.store("numpy", cache.digest("3"), TEXT)
    assert cache.load("numpy", cache.digest("0")) is None
    assert cache.load("numpy", cache.digest("3")) == TEXT
