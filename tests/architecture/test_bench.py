"""The benchmark's harness: results are compared, rows are saved one by one."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from paths import BENCH

import tilewright as tw

pytestmark = pytest.mark.torch

SCRIPTS = {path.stem for path in BENCH.glob("*.py")}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    before = set(sys.modules)
    with mock.patch.dict(os.environ):  # a script says which tier its process has
        yield importlib.import_module("cpu")  # type: ignore[misc]
    for name in set(sys.modules) - before:
        if name in SCRIPTS:
            del sys.modules[name]


def test_models_are_equal_in_both_frameworks(bench, torch):
    """Losses of several steps of training, which is what a row compares before it is timed."""
    import models
    import workloads

    make = workloads.training(
        lambda lib: models.lstm(lib, layers=2, width=8, vocab=5),
        workloads._tokens(5, 6, 3),
        lambda lib, ps: lib.optim.SGD(ps, lr=0.1),
    )
    row = bench.measure(bench.Row("small", 1.0, make, 1, 1, 1e-4), tw, torch)
    assert row["name"] == "small" and row["ours_ms"] > 0 and row["ratio"] > 0
    wrong = workloads.Row("wrong", 1.0, workloads.forward(_differs, (4,)))
    with pytest.raises(AssertionError, match="wrong"):
        bench.measure(wrong, tw, torch)
    images = models.filled(tw, models.resnet18(tw))
    assert sum(p.numel() for p in images.parameters()) == 11_173_962


def _differs(lib, x):
    return x + (lib.__name__ == "torch")


def test_rows_are_saved_one_by_one(bench, tmp_path):
    import timing

    options = SimpleNamespace(json=str(tmp_path / "rows.json"))
    rows = []
    for name in ("a", "b"):
        rows.append({"name": name})
        timing.save(rows, options)
        data = json.loads((tmp_path / "rows.json").read_text())
        assert data["rows"] == rows and {"machine", "versions", "date"} <= data.keys()
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]


def test_a_table_without_rich(bench, monkeypatch, capsys):
    """A rented machine may lack it."""
    import timing

    monkeypatch.setitem(sys.modules, "rich.console", None)
    timing.table([{"name": "a", "ours_ms": 1.5, "ratio": None}], ["name", "ours_ms", "ratio"])
    assert capsys.readouterr().out == "name a ours_ms 1.5\n"


@pytest.mark.slow
@pytest.mark.triton
@pytest.mark.skipif(shutil.which("gcc") is None, reason="the driver is made by gcc")
def test_kernels_are_made_ahead(tmp_path):
    """A run of the GPU benchmark without a card leaves what the next one begins with."""
    pytest.importorskip("triton")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    given = {**os.environ, "AHEAD": "1", "PATH": path}
    counts = []
    for turn in ("first", "second"):
        given["TW_CACHE_DIR"] = str(tmp_path / f"{turn} kernels")
        command = ["sh", str(BENCH / "rented.sh"), str(tmp_path / turn), "3", "attention"]
        subprocess.run(command, env=given, check=True, capture_output=True)
        rows = json.loads((tmp_path / turn / "attention.json").read_text())["rows"]
        assert len(rows) == 4 and all(row["ours_ms"] > 0 for row in rows)
        counts.append(sum(p.is_file() for p in Path(given["TW_CACHE_DIR"]).rglob("*")))
        given["KERNELS"] = str(tmp_path / turn / "kernels.tar.gz")
    assert counts[0] == counts[1] > 4


@pytest.mark.slow
def test_processes_measure_themselves(bench, tmp_path):
    import processes

    found = processes.measure("first", "tilewright", cache=str(tmp_path), tier="fused")
    assert found["ms"] > 0 and list(tmp_path.iterdir())
    assert processes.measure("import", "tilewright")["mb"] > 0


def test_new_work_is_equal_in_both_frameworks(bench, torch, monkeypatch):
    """All rows and curves but the largest, with few steps."""
    import latency
    import latency_graphs

    from tilewright.runtime import tiers

    monkeypatch.setattr(tiers, "mode", tiers.AUTO)
    for name, row in {**latency.ROWS, **latency_graphs.CURVES}.items():
        if name == "first step, ResNet-18":
            continue
        steps = min(row.steps, 3 if row.lengths else 20)
        if name in latency_graphs.CURVES:
            steps = 9
        ours, theirs = (latency.timed(lib, row, steps) for lib in (tw, torch))
        assert ours["s"] > 0 and any(ours["results"])
        latency._agree(name, ours, theirs)
    with pytest.raises(AssertionError, match=r"fan: 2\.0 differs from 1"):
        latency._agree("fan", {"results": [2.0]}, {"results": [1.0]})


@pytest.mark.slow
def test_new_work_is_measured_in_processes(bench, capsys, tmp_path, monkeypatch):
    import latency

    path = tmp_path / "latency.json"
    monkeypatch.setattr(sys, "argv", ["latency.py", "--json", str(path), "float(("])
    latency.main()
    (row,) = json.loads(path.read_text())["rows"]
    assert row["steps"] == 500 and row["cold, s"] > 0 and row["disk cache warm, s"] > 0
    assert row["torch / cold"] == row["torch, s"] / row["cold, s"]
    arguments = ["latency.py", "--json", str(path), "--curves", "--most", "100", "fan"]
    monkeypatch.setattr(sys, "argv", arguments)
    latency.main()
    small, large = json.loads(path.read_text())["rows"]
    assert (small["ops"], large["ops"]) == (10, 100) and "exponent" in large


@pytest.mark.slow
def test_the_gpu_benchmark_runs_alone(monkeypatch, tmp_path, capsys):
    """Without PyTorch on the card, and on a driver without a card."""
    pytest.importorskip("triton")
    import fake_cuda

    monkeypatch.syspath_prepend(str(BENCH))
    gpu = importlib.import_module("gpu")
    rows = gpu.gpu_rows
    small = rows.Row(
        "chain", 0.9, "bandwidth", rows.forward(rows._chain, (4, 8), (8,), (8,)), bytes=128
    )
    product = rows.Row(
        "product", 1, "ratio", rows.both_ways(rows._product, (4, 4), (4, 4)), flops=1
    )
    grouped = rows.Row("grouped", 1, "ratio", rows.in_groups(24, 8, 16, 4, True), flops=1)
    wrong = rows.Row("wrong", 1, "ratio", rows.forward(rows._product, (4, 3), (4, 3)))
    monkeypatch.setattr("card.CACHE", 64)
    monkeypatch.setattr("card.MOST", 3)
    monkeypatch.setattr(gpu, "FLUSHES", 5)
    monkeypatch.setattr(gpu, "OVERLAPS", 4)
    monkeypatch.setattr(gpu, "SIDE", 32)
    monkeypatch.setattr(gpu, "COPIED", 64)
    monkeypatch.setattr(rows, "PIECES", {"memory": [small, product, grouped, wrong]})
    monkeypatch.setattr(gpu.Benchmark, "copy_bandwidth", lambda self: 1e12)
    relu = gpu.kernelbench.chosen([1], ["1.19"])
    monkeypatch.setattr(gpu.kernelbench, "chosen", lambda levels, only: relu)
    monkeypatch.setattr(gpu.kernelbench, "FULL", gpu.kernelbench.SMALL)
    options = SimpleNamespace(
        json=str(tmp_path / "gpu.json"),
        only=["memory", "kernelbench"],
        minutes=5,
        device="cuda",
    )
    with fake_cuda.installed():
        benchmark = gpu.Benchmark(options, tw, None)
        benchmark.run()
        answers = dict(gpu.questions(tw, "cuda"))
        monkeypatch.setattr(sys, "argv", ["-c", "cuda", "64"])
        exec(gpu.ENDING, {})
        monkeypatch.setattr(gpu, "walked", lambda tw, device: 1 / 0)
        broken = dict(gpu.questions(tw, "cuda"))
    for name in (
        "a kernel compiled here runs",
        "a product in bfloat16",
        "a large product, tiles copied by hardware",
        "tiles of rows that overlap",
    ):
        assert answers[name] is True
    assert not [a for a in answers.values() if isinstance(a, str) and "Error: " in a[:40]]
    assert "ZeroDivisionError" in broken["a large product, tiles copied by hardware"]
    assert broken["tiles of rows that overlap"] is True and "graphs" in broken
    by_name = {row["name"]: row for row in json.loads(Path(options.json).read_text())["rows"]}
    assert by_name["chain"]["ours_ms"] > 0 and by_name["chain"]["share"] > 0
    assert by_name["product"]["tflops"] > 0 and by_name["product"]["reached"] is None
    assert by_name["grouped"]["ours_ms"] > 0
    assert by_name["product"]["roofline"] > 0 and by_name["product"]["predicted_ms"] > 0
    assert "matmul" in by_name["wrong"]["error"]
    assert by_name["1.19 relu"]["ours_ms"] > 0


@pytest.mark.slow
def test_programs_run_beside_pytorch(tmp_path):
    """Each side in a process of its own, on the CPU here: values are compared, then steps timed."""
    path = tmp_path / "programs.json"
    command = [sys.executable, str(BENCH / "gpu_programs.py"), "--device", "cpu", "--turns", "1"]
    command += ["--json", str(path), "shared, frozen", "other framework wrote"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    rows = json.loads(path.read_text())["rows"]
    assert len(rows) == 2 and all(row["answer"] == "right" for row in rows), done.stderr
    assert all(row["ratio"] == row["torch_ms"] / row["ours_ms"] for row in rows)


def test_a_program_with_other_values_is_seen(bench):
    import gpu_programs

    def tensor(values, dtype="torch.float32", device="cuda"):
        return "tensor", dtype, device, np.array(values)

    def found(ours, theirs):
        return list(gpu_programs.differences(ours, theirs, 1e-3))

    wanted = {"a": [tensor([1.0, np.nan, np.inf, 1e-9]), 2.0, "x"], "b": tensor([1, 2])}
    near = {"a": [tensor([1.0005, np.nan, np.inf, 0.0]), 2.001, "x"], "b": tensor([1, 2])}
    assert found(wanted, wanted) == [] and found(near, wanted) == []
    others = [tensor([1.002, np.nan, np.inf, 0.0]), tensor([1.0, 1.0, np.inf, 0.0])]
    others += [tensor([1.0, np.nan, -np.inf, 0.0]), tensor([1.0]), tensor([np.nan] * 4)]
    others += [tensor(wanted["a"][0][3], device="cpu"), tensor(wanted["a"][0][3], "torch.float64")]
    for other in others:
        assert len(found({**wanted, "a": [other, 2.0, "x"]}, wanted)) == 1
    for other in ({**wanted, "b": tensor([1, 3])}, {"a": wanted["a"]}, {**wanted, "a": [2.0]}):
        assert len(found(other, wanted)) == 1
    assert len(found({**wanted, "a": [wanted["a"][0], 2.01, "y"]}, wanted)) == 2


def test_a_program_that_dies_or_hangs_costs_no_other(bench, tmp_path):
    import gpu_programs

    options = SimpleNamespace(device="cpu", limit=60.0)
    side = gpu_programs.Side("no such program", "ours", tmp_path, options, True)
    with pytest.raises(RuntimeError, match="exit status 1: "):
        side.answer(60.0)
    side = gpu_programs.Side("VAE", "ours", tmp_path, options, True)
    with pytest.raises(RuntimeError, match=r"no answer in 0 s"):
        side.answer(0.01)
    assert side.child.returncode == -9
