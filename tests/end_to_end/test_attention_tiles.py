"""bench/attention_tiles.py without a card: on the driver that interprets launches, and offline."""

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

pytestmark = pytest.mark.triton
BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench() -> Iterator[ModuleType]:
    """The script; the modules beside it are forgotten again."""
    sys.path.insert(0, str(BENCH))
    try:
        yield importlib.import_module("attention_tiles")
    finally:
        sys.path.remove(str(BENCH))
        for name in ("attention_tiles", "timing"):
            sys.modules.pop(name, None)


def test_candidates_are_compared_and_timed(
    bench: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "MOST", 1)
    file = tmp_path / "tiles.json"
    with fake_cuda.installed():
        found = bench.main(["--json", str(file), "--flushed", "1024", "1x1x64x16"])
    assert {row["pass"] for row in found} == set(bench.PASSES)
    assert all("error" not in row and row["us"] > 0 for row in found)
    for name in bench.PASSES:
        of_pass = [row for row in found if row["pass"] == name]
        assert of_pass[0]["default"] and len(of_pass) > 1
    assert json.loads(file.read_text())["rows"] == found


@pytest.mark.slow
def test_offline_it_tells_what_compilers_say(bench: ModuleType) -> None:
    found = bench.main(["--offline", "sm_90", "--passes", "forward", "--", "1x1x64x16"])
    assert found[0]["default"]
    assert all(row["registers"] > 0 and "us" not in row for row in found)
