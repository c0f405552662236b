"""Files are written as a whole, and only plain ones are replaced."""

from __future__ import annotations

import io
import os
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import tilewright as tw
from tilewright.runtime import files
from tilewright.runtime.results import portable


@contextmanager
def _pipe(path: Path) -> Iterator[list[bytes]]:
    """A named pipe at `path`; after the block the list has what was written to it."""
    os.mkfifo(path)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(path.read_bytes()))
    reader.start()
    yield read
    reader.join(60)


def _checkpoint(path: Any) -> None:
    tw.save({"x": tw.arange(3)}, path)


def _results(path: Any) -> None:
    portable.write(path, [])


def _onnx(path: Any) -> None:
    pytest.importorskip("onnx")
    tw.onnx.export(lambda x: x + 1, (tw.ones(2),), path)


def _package(path: Any) -> None:
    pytest.importorskip("triton")
    tw.aot.compile(lambda x: x + 1, (tw.ones(2),), path, target="sm_80")


WRITERS = [_checkpoint, _results, _onnx, pytest.param(_package, marks=pytest.mark.slow)]
every_writer = pytest.mark.parametrize("write", WRITERS)


@every_writer
def test_what_is_no_plain_file_stays(write: Callable[[Any], None], tmp_path: Path) -> None:
    plain = tmp_path / "data"
    write(plain)
    content = plain.read_bytes()
    assert content and list(tmp_path.iterdir()) == [plain]

    # The null device stays one.
    before = os.stat(os.devnull)
    write(os.devnull)
    after = os.stat(os.devnull)
    assert stat.S_ISCHR(after.st_mode) and after.st_ino == before.st_ino

    pipe = tmp_path / "pipe"
    with _pipe(pipe) as read:
        write(pipe)
    assert pipe.is_fifo() and len(read[0]) == len(content)

    target, link = tmp_path / "below" / "target", tmp_path / "link"
    target.parent.mkdir()
    for _ in range(2):  # one that points to nothing yet, then to a file
        link.unlink(missing_ok=True)
        link.symlink_to("below/target")
        write(link)
        assert link.is_symlink() and len(target.read_bytes()) == len(content)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["below", "data", "link", "pipe"]
    assert list(target.parent.iterdir()) == [target]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"before")
    path.chmod(0o640)
    with pytest.raises(KeyError), files.whole(path) as file:
        file.write(b"half")
        raise KeyError
    assert path.read_bytes() == b"before" and list(tmp_path.iterdir()) == [path]
    with files.whole(path) as file:
        file.write(b"after")
    assert path.read_bytes() == b"after" and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_command_writes_to_its_output(tmp_path: Path, run_python: Any) -> None:
    pytest.importorskip("onnx")
    (tmp_path / "model.py").write_text("def net(x):\n    return x * 2\n")
    code = """
import subprocess, sys
command = [sys.executable, "-m", "tilewright", "export", "model.py:net", "--input", "2"]
run = subprocess.run([*command, "-o", "/dev/stdout"], capture_output=True, check=True)
assert b"wrote" in run.stderr and b"wrote" not in run.stdout
import io, onnx
onnx.checker.check_model(onnx.load(io.BytesIO(run.stdout)))
"""
    run_python(code, cwd=tmp_path)


def test_a_checkpoint_comes_through_a_pipe(tmp_path: Path) -> None:
    with _pipe(tmp_path / "pipe") as read:
        _checkpoint(tmp_path / "pipe")
    assert tw.load(io.BytesIO(read[0]))["x"].tolist() == [0, 1, 2]
