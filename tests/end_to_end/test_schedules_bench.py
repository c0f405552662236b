"""bench/schedules.py without a card: on the driver that interprets launches."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

pytest.importorskip("triton")

import fake_cuda

pytestmark = [pytest.mark.triton, pytest.mark.slow]
BENCH = Path(__file__).parents[2] / "bench"
MODULES = ("schedules", "gpu_rows", "models", "predicted", "problems", "timing")


@pytest.fixture
def bench() -> Iterator[ModuleType]:
    """The script; the modules beside it are forgotten again."""
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("schedules")
    finally:
        sys.path.remove(str(BENCH))
        for name in MODULES:
            sys.modules.pop(name, None)


def test_schedules_are_compared_and_timed(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = bench.gpu_rows
    small = [
        rows._gemm(32, 32, 32),
        *rows._attention(1, 1, 64, 16)[:1],
        *rows._grouped(64, 16, 32, 4)[:1],
    ]
    monkeypatch.setattr(rows, "PIECES", {"small": small})
    monkeypatch.setattr(bench, "MOST", 1)
    monkeypatch.setattr(bench, "FLUSHED", 1024)
    file = tmp_path / "schedules.json"
    with fake_cuda.installed():
        found = bench.main(["--json", str(file), "--count", "3", "--least", "0"])
    for row in small:
        of_row = [r for r in found if r["row"] == row.name]
        assert sum("default" in r["schedule"] for r in of_row) == len({r["kernel"] for r in of_row})
        assert all(r["us"] > 0 for r in of_row) and max(r["share"] for r in of_row) == 1
    assert json.loads(file.read_text())["rows"] == found
    with fake_cuda.installed():
        wanted = ["--kernels", "attention", "--only", "block_m=32", "num_warps=4,8"]
        found = bench.main([*wanted, "--count", "3", "--least", "0"])
    default, *others = sorted(found, key=lambda r: "default" not in r["schedule"])
    assert "attention" in default["kernel"] and others
    assert all(r["schedule"].startswith("32x") for r in others)
