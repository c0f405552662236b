"""The command line, and the report behind `tilewright explain`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import tilewright as tw
from tilewright.cli.app import app
from tilewright.cli.target import find_object, parse_input
from tilewright.codegen.kernel.mlir_printer import parse_kernel, print_kernel
from tilewright.inspection.explanation import Report

SCRIPT = """
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.hidden = nn.Linear(4, 8)
        self.out = nn.Linear(8, 3)

    def forward(self, x):
        return self.out(F.relu(self.hidden(x)))


net = Net()


def double(x):
    return x * 2


if __name__ == "__main__":
    print("argv", sys.argv)
    optimizer = optim.Adam(net.parameters(), lr=0.01)
    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 3, (64,)))
    for x, y in DataLoader(data, batch_size=16):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        loss.item()
    print(torch.__name__, nn is torch.nn, __file__)
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "train_net.py"
    path.write_text(SCRIPT)
    return path


def call(*args: str, cwd: Path | None = None) -> tuple[int, str, str]:
    """(status, stdout, stderr) of `python -m tilewright ARGS` in a process of its own."""
    tree = str(Path(tw.__file__).resolve().parents[1] / ".src")
    path = os.pathsep.join(filter(None, [tree, os.environ.get("PYTHONPATH")]))
    child = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tilewright", *args],
        env={**os.environ, "PYTHONPATH": path},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
    )
    return child.returncode, child.stdout, child.stderr


def invoke(*args: str) -> Any:
    return CliRunner().invoke(app, list(args))


# ---- run -------------------------------------------------------------------------------------


def test_run_an_unmodified_script(script: Path) -> None:
    status, out, err = call("run", script.name, "--lr", "1", "--help", cwd=script.parent)
    assert (status, err) == (0, "")
    first, last = out.splitlines()[0], out.splitlines()[-1]
    assert first == "argv ['train_net.py', '--lr', '1', '--help']"
    assert last == f"torch True {script}"


def test_run_a_module(tmp_path: Path) -> None:
    package = tmp_path / "nets"
    package.mkdir()
    (package / "__init__.py").write_text("import torch\n")
    (package / "__main__.py").write_text(
        "import sys\nfrom . import torch\n"
        "print(sys.argv[1:], __name__, __spec__.name, hasattr(torch.version, 'tilewright'))\n"
        "raise SystemExit(len(sys.argv))\n"
    )
    status, out, err = call("run", "-m", "nets", "-m", "--lr", "1", cwd=tmp_path)
    assert (status, err) == (4, "")
    assert out == "['-m', '--lr', '1'] __main__ nets.__main__ True\n"
    status, _, err = call("run", "-m", "no_nets", cwd=tmp_path)
    assert status == 1 and err.endswith("No module named no_nets\n") and "tilewright" not in err


def test_an_error_looks_like_pythons(tmp_path: Path) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import torch\n\ndef f():\n    torch.ones(2) @ torch.ones(3)\n\nf()\n")
    status, _, err = call("run", str(path))
    assert status == 1
    lines = err.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == f'  File "{path}", line 6, in <module>'
    assert lines[-1].startswith("RuntimeError: ")
    path.write_text("x = (\n")
    status, _, err = call("run", str(path))
    assert status == 1 and "SyntaxError" in err and "tilewright" not in err


@pytest.mark.parametrize(
    ("code", "status", "message"),
    [
        ("raise SystemExit(7)", 7, ""),
        ("raise SystemExit('stop here')", 1, "stop here\n"),
        ("import sys; sys.exit()", 0, ""),
    ],
)
def test_exit_status(tmp_path: Path, code: str, status: int, message: str) -> None:
    path = tmp_path / "stop.py"
    path.write_text(code)
    assert call("run", str(path)) == (status, "", message)


def test_a_module_that_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "far.py"
    path.write_text(
        "try:\n    import torch.nowhere\nexcept ModuleNotFoundError as e:\n    print(e)\n"
    )
    _, out, _ = call("run", str(path))
    assert out.startswith("No module named 'torch.nowhere': tilewright, which stands in for")


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_script_that_is_not_there(command: str, tmp_path: Path) -> None:
    status, out, err = call(command, "nowhere.py", cwd=tmp_path)
    assert (status, out) == (2, "")
    assert err == "tilewright: error: can't open 'nowhere.py': no such file\n"
    result = invoke(command, str(tmp_path))
    assert result.exit_code == 2 and "is a folder" in result.stderr


# ---- explain ---------------------------------------------------------------------------------


def test_explain_shows_every_stage(script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TW_CPU", "numpy")
    status, out, err = call("explain", str(script), "--top", "9", "--", "one")
    assert (status, err) == (0, "")
    assert "argv" in out and "'one']" in out
    for expected in (
        "plan 0: ",
        "launches on cpu",
        " moved; ",
        '"builtin.module"()',
        '"tw.linear"',
        "not fused: ",
        "kernel ",
        "import numpy as np",
        "train_net.py:18",
    ):
        assert expected in out, expected


def test_explain_one_stage_for_a_gpu(script: Path) -> None:
    pytest.importorskip("triton")
    status, out, _ = call("explain", str(script), "--stage", "source", "--target", "sm_90")
    assert status == 0
    assert "@triton.jit" in out and "tw.linear" not in out and "not fused" not in out


def test_explain_writes_files(script: Path, tmp_path: Path) -> None:
    status, out, _ = call("explain", str(script), "--top", "2", "-o", str(tmp_path / "out"))
    assert status == 0 and "wrote " in out
    for name in ("graph.mlir", "lowered.mlir", "fusion.txt"):
        assert (tmp_path / "out" / "plan-0" / name).stat().st_size > 100
    assert list((tmp_path / "out" / "plan-1" / "source").glob("*.py"))
    for file in (tmp_path / "out" / "plan-0" / "kernels").glob("*.mlir"):
        assert print_kernel(parse_kernel(file.read_text())) == file.read_text()


def test_explain_of_a_failing_script(tmp_path: Path) -> None:
    path = tmp_path / "fails.py"
    path.write_text("import torch\nprint(torch.ones(2).sum().item())\n1 / 0\n")
    status, out, err = call("explain", str(path))
    assert status == 1 and out == "2.0\n" and "ZeroDivisionError" in err


def test_explain_of_nothing(tmp_path: Path) -> None:
    path = tmp_path / "idle.py"
    path.write_text("import torch\n")
    assert "nothing was computed" in call("explain", str(path))[1]


def test_an_unknown_target(script: Path) -> None:
    result = invoke("explain", str(script), "--target", "sm_12345")
    assert result.exit_code == 2
    assert "no target 'sm_12345': expected one of sm_80" in result.stderr


# ---- the report as a library -----------------------------------------------------------------


def test_report_on_a_function() -> None:
    model = tw.nn.Linear(3, 2)
    x = tw.randn(5, 3)

    def step() -> None:
        model.zero_grad()
        loss = model(x).square().sum()
        loss.backward()
        loss.item()

    report = tw.explain(step)
    assert isinstance(report, Report) and len(report.plans) == 1
    (plan,) = report.plans
    assert plan.runs == 1 and plan.launches >= 1 and plan.ops >= 3
    assert plan.bytes_moved >= 4 * (5 * 3 + 2 * 3)
    assert plan.device == "cpu"
    assert "linear" in plan.graph() and "test_cli.py" in plan.graph()
    assert len(plan.sources()) == len(plan.kernels()) == plan.launches
    assert plan.title() in str(report)
    again = tw.explain(step).plans
    assert [p.plan for p in again] == [plan.plan]


def test_report_in_files(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    x = tw.randn(4, 6)
    report = tw.explain(lambda: x.softmax(1).tolist())
    files = report.write(tmp_path, targets=["sm_90", "gfx942"])
    assert all(f.is_file() for f in files)
    (triton,) = (tmp_path / "plan-0" / "sm_90").glob("*.py")
    compile(triton.read_text(), str(triton), "exec")
    assert "@triton.jit" in triton.read_text()


# ---- export ----------------------------------------------------------------------------------


def test_export(script: Path, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    target, file = "train_net:net", tmp_path / "deep" / "net.onnx"
    options = ("--input", "1x4", "-o", str(file), "--dynamic-batch", "--verify")
    status, out, err = call("export", target, *options, cwd=script.parent)
    assert (status, err) == (0, "")
    assert out == f"wrote {file}: x[batch, 4] -> output[batch, 3]\n"
    names = {i.name for i in onnx.load(file).graph.initializer}
    assert names == {"hidden.weight", "hidden.bias", "out.weight", "out.bias"}
    # From a path, as a class, with saved weights; and a function.
    weights = tmp_path / "net.pt"
    tw.save({n: tw.zeros(*s) for n, s in (("hidden.weight", (8, 4)), ("hidden.bias", (8,)),
             ("out.weight", (3, 8)), ("out.bias", (3,)))}, weights)  # fmt: skip
    status, _, err = call(
        "export", f"{script}:Net", "--input", "2x4", "-o", str(file), "--weights", str(weights)
    )
    assert (status, err) == (0, "")
    loaded = {i.name: onnx.numpy_helper.to_array(i) for i in onnx.load(file).graph.initializer}
    assert not loaded["out.weight"].any()
    status, out, _ = call("export", f"{script}:double", "--input", "2,int64", "-o", str(file))
    assert status == 0 and out.endswith("x[2] -> output[2]\n")


@pytest.mark.parametrize(
    ("target", "given", "status", "message"),
    [
        ("nothing/here.py:net", "1x4", 2, "no such file: nothing/here.py"),
        ("train_net:net", "1x5", 1, "linear: expected an input of shape (..., 4)"),
        *(
            pytest.param(target, given, 2, message, marks=pytest.mark.slow)
            for target, given, message in (
                ("train_net", "1x4", "expected MODULE:OBJECT"),
                ("nothing_here:net", "1x4", "no module 'nothing_here'"),
                ("train_net:nett", "1x4", "train_net has no 'nett'"),
                ("train_net:sys", "1x4", "expected a module or a function"),
                ("train_net:net", "1xfour", "expected an input such as 1x1x8x8"),
                ("train_net:net", "1x4,float99", "no dtype 'float99'"),
            )
        ),
    ],
)
def test_export_of_what_is_not_there(
    script: Path, target: str, given: str, status: int, message: str
) -> None:
    pytest.importorskip("onnx")
    found, out, err = call("export", target, "--input", given, "-o", "x.onnx", cwd=script.parent)
    assert (found, out) == (status, "")
    assert err.startswith("tilewright: error: ") and message in err
    assert err.count("\n") == 1


def test_inputs() -> None:
    assert parse_input("2x3").shape == (2, 3)
    tokens = parse_input("1x4, int64")
    assert tokens.dtype is tw.int64 and tokens.tolist() == [[0, 0, 0, 0]]
    assert parse_input("scalar").shape == ()
    assert find_object("math:pi") > 3


# ---- env and the rest ------------------------------------------------------------------------


def test_env() -> None:
    result = invoke("env", "--json")
    assert result.exit_code == 0
    found = json.loads(result.stdout)
    assert found["tilewright"] == tw.version.tilewright
    assert found["packages"]["numpy"] and set(found["extras"]) == {"gpu", "onnx", "cpu"}
    assert "cpu" in found["devices"]
    assert found["cache"]["folder"].startswith(os.environ["XDG_CACHE_HOME"])
    text = invoke("env").stdout
    assert "numpy" in text and "device cpu" in text and found["cache"]["folder"] in text


def test_version_and_help() -> None:
    assert invoke("--version").stdout == f"tilewright {tw.version.tilewright}\n"
    for command in ("run", "explain", "export", "env"):
        assert command in invoke("--help").stdout
        assert invoke(command, "--help").exit_code == 0
    assert invoke("nonsense").exit_code == 2


@pytest.mark.slow
def test_compile_writes_a_program_for_a_gpu(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "model.py").write_text(
        "import torch\n\nnet = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU())\n"
    )
    status, out, err = call(
        "compile", "model:net", "--input", "2x4", "--target", "sm_80", "-o", "out/net.tw",
        cwd=tmp_path,
    )  # fmt: skip
    assert (status, err) == (0, "")
    first, *rest = out.splitlines()
    assert first.startswith("wrote out/net.tw: 1 kernels for sm_80, ")
    assert rest == ["  input input: torch.float32[2, 4]", "  output output: torch.float32[2, 8]"]
    assert (tmp_path / "out/net.tw").is_file()
    status, _, err = call(
        "compile", "model:net", "--input", "2x5", "--target", "sm_80", "-o", "x.tw", cwd=tmp_path
    )
    assert status == 1 and err.startswith("tilewright: error: ") and err.count("\n") == 1


@pytest.mark.slow
def test_compile_of_an_onnx_file(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    pytest.importorskip("onnx")
    tw.onnx.export(tw.nn.Linear(4, 8), tw.zeros(2, 4), tmp_path / "net.onnx")
    options = ("--input", "2x4", "--target", "sm_80", "-o", "net.tw")
    status, out, err = call("compile", "net.onnx", *options, cwd=tmp_path)
    assert (status, err) == (0, "")
    assert out.startswith("wrote net.tw: ") and out.endswith("output: torch.float32[2, 8]\n")
    (tmp_path / "bad.onnx").write_text("no model")
    for file, message in (("none.onnx", "No such file"), ("bad.onnx", "is no ONNX model")):
        status, _, err = call("compile", file, *options, cwd=tmp_path)
        assert status == 2 and message in err and err.count("\n") == 1


@pytest.mark.triton
def test_pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real cubins of what a script computes, which a device would find."""
    from tilewright.runtime.cuda import pack

    script, file = tmp_path / "maps.py", tmp_path / "out" / "kernels.pack"
    script.write_text("import torch\nprint((torch.ones(300).exp() * 2).sum().item())\n")
    status, out, err = call("pack", str(script), "-o", str(file), "--target", "sm_80")
    assert (status, err) == (0, "") and "kernels for sm_80" in out
    said = json.loads(file.read_bytes().partition(b"\n")[0])
    monkeypatch.setenv("TW_KERNELS", str(file))
    images = [pack.image(key) for key in said["images"]]
    assert images and all(i is not None and i.binary[:4] == b"\x7fELF" for i in images)
    assert pack.image("0") is None
    result = invoke("pack", str(script), "-o", str(file), "--target", "gfx942")
    assert result.exit_code == 2 and "NVIDIA" in result.output
