"""The disk cache: what is torn or foreign is never used, and a failure to write stops nothing."""

from __future__ import annotations

import os
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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
