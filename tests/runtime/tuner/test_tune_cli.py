"""`tilewright tune` from the command line, and tuning beside a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tilewright.cli.app import app
from tilewright.runtime.native import host
from tilewright.runtime.results import choices
from tilewright.runtime.results.database import Database

pytestmark = pytest.mark.usefixtures("own_database")
needs_llvm = pytest.mark.skipif(host.reason_against() is not None, reason="no native code here")
PNG = b"\x89PNG\r\n\x1a\n"
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def run(*args: Any, status: int = 0) -> str:
    result = CliRunner().invoke(app, ["tune", *map(str, args)])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result.output


def run_apart(*args: Any, status: int = 0) -> str:
    """In a process of its own, where `import torch` can mean tilewright."""
    command = [sys.executable, "-m", "tilewright", "tune", *map(str, args)]
    result = subprocess.run(
        command,
        env={**ENVIRONMENT, "TW_TUNE_DB": os.environ["TW_TUNE_DB"]},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=240,
    )
    assert result.returncode == status, result.stdout
    return result.stdout


def data(*args: Any) -> Any:
    return json.loads(run(*args, "--json"))


@needs_llvm
def test_a_family_is_tuned_listed_shown_and_kept(tmp_path: Path) -> None:
    found = data("matmul", "64x48x80", "40x48x80", "--effort", "quick", "--quiet")
    assert [k["family"] for k in found["kernels"]] == ["matmul", "matmul"]
    assert found["measured"] >= 12 and all(k["complete"] for k in found["kernels"])
    assert found["kernels"][0]["bad"] == 0
    assert (
        "matmul_dot float32" in run("list") and run("list", "--device", "no such").count("\n") < 3
    )
    shown = run("show", "matmul", "--top", 3)
    assert "measured" in shown and "default" in shown
    assert len(data("show", "matmul")[0]["candidates"]) == found["kernels"][0]["known"]
    again = data("matmul", "64x48x80", "40x48x80", "--effort", "quick", "--quiet")
    assert again["measured"] == 0, "nothing is measured twice"
    assert [k["schedule"] for k in again["kernels"]] == [k["schedule"] for k in found["kernels"]]


@needs_llvm
def test_results_go_to_another_machine_and_are_pinned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("softmax", "30x100", "--effort", "quick", "--quiet")
    best, whole = tmp_path / "best.json", tmp_path / "whole.json"
    assert "1 kernels" in run("export", best)
    run("export", whole, "--candidates")
    assert len(whole.read_text()) > len(best.read_text())
    listed = data("list")
    monkeypatch.setenv("TW_TUNE_DB", str(tmp_path / "other" / "tuning.sqlite"))
    assert "nothing was tuned" in run("list")
    run("import", whole)
    assert data("list") == listed
    assert data("softmax", "30x100", "--effort", "quick", "--quiet")["measured"] == 0
    run("merge", tmp_path / "tuning.sqlite")
    assert len(data("list")) == 1
    monkeypatch.setenv("TW_TUNE_FILE", str(best))
    choices.forget()
    assert "TW_TUNE_FILE" in run("softmax", "30x100", "--quiet", status=1)
    monkeypatch.delenv("TW_TUNE_FILE")
    assert "removed 0" in run("prune", "--old")
    assert "removed 1" in run("prune", "--days", "0")
    assert "nothing was tuned" in run("list")


SCRIPT = """
import sys
import torch
import torch.nn as nn
net = nn.Linear(30, 20)
print("args", sys.argv[1:])
for step in range(3):
    loss = net(torch.randn(16, 30)).relu().sum()
    loss.backward()
    loss.item()
"""


@pytest.mark.slow
@needs_llvm
def test_a_script_is_run_and_its_kernels_are_tuned(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    said = run_apart(script, "--effort", "quick", "--quiet", "--top", 1, "--", "--epochs", "2")
    assert "args ['--epochs', '2']" in said and "1 of 1 kernels tuned" in said
    script.write_text("raise ValueError('mine')")
    run_apart(script, status=1)
    script.write_text("x = 1")
    assert "launched no kernel" in run_apart(script, status=1)


MODEL = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(12, 8), torch.nn.ReLU())
"""


@needs_llvm
@pytest.mark.slow
def test_a_model_is_tuned_and_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "net_to_tune.py").write_text(MODEL)
    target = f"{tmp_path / 'net_to_tune.py'}:net"
    pictures = tmp_path / "pictures"
    run_apart(target, "--input", "4x12", "--effort", "quick", "--quiet", "--plot", pictures)
    files = sorted(p.name for p in pictures.iterdir())
    assert "roofline.png" in files and any(f.endswith("_search.png") for f in files)
    assert all((pictures / f).read_bytes().startswith(PNG) for f in files)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["matmul"], "matmul wants shapes"),
        (["matmul", "3x4"], "matmul takes [BATCHx]MxNxK"),
        (["matmul", "3x4x5", "--dtype", "float12"], "no dtype 'float12'"),
        (["matmul", "3x4x5", "--budget", "soon"], "expected a time such as 30s"),
        (["matmul", "3x4x5", "--offline"], "--offline and --target go together"),
        (["matmul", "3x4x5", "--offline", "--target", "sm_1"], "no target 'sm_1'"),
        (["no_such_thing"], "can't tune 'no_such_thing'"),
        (["no_such_file.py"], "no such file"),
        (["net:net"], "--input"),
        (["show", "nothing"], "no kernel with 'nothing'"),
        (["import", "missing.json"], "missing.json"),
        (["merge", "missing.sqlite"], "no such file: missing.sqlite"),
        (["prune"], "say what to remove"),
    ],
)
def test_mistakes_are_one_line(args: list[str], message: str) -> None:
    result = CliRunner().invoke(app, ["tune", *args])
    assert result.exit_code in (1, 2) and message in result.output
    assert result.output.startswith("tilewright: error:") and result.output.count("\n") == 1


def test_help_names_every_command() -> None:
    text = run("--help")
    for name in ("list", "show", "export", "import", "merge", "prune"):
        assert name in text


@pytest.mark.slow
@pytest.mark.triton
def test_schedules_for_a_gpu_that_is_not_here_are_ranked_and_never_used() -> None:
    pytest.importorskip("triton")
    found = data(
        "matmul", "256x256x256", "--dtype", "bfloat16", "--target", "sm_90", "--offline",
        "--effort", "quick",
    )["kernels"][0]  # fmt: skip
    assert found["space"] > 100 and found["compiled"] >= 4
    seconds = [each["seconds"] for each in found["first"][: found["compiled"]]]
    assert seconds == sorted(seconds) and 0 < seconds[0] <= found["default_seconds"]
    with Database() as database:
        (record,) = database.records()
        candidates = database.record(record.key).candidates  # type: ignore[union-attr]
    assert record.chosen is None and "predicted" in record.key.device
    assert {c.status for c in candidates.values()} == {"prior"}


TUNE = [sys.executable, "-m", "tilewright", "tune", "matmul", "200x160x180"]


def candidates_of(path: Path) -> dict[str, Any]:
    with Database(path) as database:
        records = database.records()
        found = database.record(records[0].key) if records else None
    return dict(found.candidates) if found is not None else {}


@needs_llvm
@pytest.mark.slow
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_a_search_that_is_ended_keeps_its_best_and_goes_on(
    own_database: Path, sign: signal.Signals
) -> None:
    """Ctrl-C and kill -9, at any moment."""
    process = subprocess.Popen(
        [*TUNE, "--effort", "exhaustive", "--quiet"],
        env={**ENVIRONMENT, "TW_TUNE_DB": str(own_database)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that starts this in the background has interrupts ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    deadline = time.monotonic() + 120
    while len(candidates_of(own_database)) < 8 and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(sign)
    said = process.communicate(timeout=60)[0]
    before = candidates_of(own_database)
    with Database(own_database) as database:
        (record,) = database.records()
    assert record.chosen is not None and record.effort == ""
    if sign == signal.SIGINT:
        assert process.returncode == 130 and "the best until then is kept" in said
    else:
        assert process.returncode == -signal.SIGKILL
    found = data(*TUNE[4:], "--effort", "full", "--quiet")["kernels"][0]
    assert found["complete"] and found["known"] == found["measured"] + len(before)


LOOP = """
import sys, time
import tilewright as torch
net = torch.nn.Linear(64, 48)
optimizer = torch.optim.SGD(net.parameters(), lr=1e-3)
x = torch.ones(32, 64)
end = time.monotonic() + 200
from tilewright.tuning import online
while len(online.running.searched) < 2 and time.monotonic() < end:
    optimizer.zero_grad()
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    value = loss.item()
print(len(online.running.searched), value == value)
"""


@needs_llvm
@pytest.mark.slow
def test_kernels_are_tuned_beside_a_program(own_database: Path) -> None:
    environment = {**ENVIRONMENT, "TW_TUNE_DB": str(own_database), "TW_TUNE": "0.9"}
    result = subprocess.run(
        [sys.executable, "-c", LOOP], env=environment, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stderr
    searched, sound = result.stdout.split()
    assert int(searched) >= 2 and sound == "True"
    with Database(own_database) as database:
        assert [r.effort for r in database.records()].count("quick") >= 2


def test_a_share_that_is_none_is_refused() -> None:
    environment = {**ENVIRONMENT, "TW_TUNE": "much"}
    result = subprocess.run(
        [sys.executable, "-c", "import tilewright"], env=environment, capture_output=True, text=True
    )
    assert "TW_TUNE: expected 1, or a share of time such as 0.05, got 'much'" in result.stderr
