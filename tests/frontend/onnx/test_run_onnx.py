"""`tilewright run-onnx`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from tilewright.cli.app import app

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

from onnx_models import ints, model_of, normal, theirs  # noqa: E402

PRODUCT = model_of([("MatMul", "x w", "y")], {"x": ["n", 3]}, {"w": normal(3, 4)})


def run(path: Path, *arguments: str) -> Any:
    return CliRunner().invoke(app, ["run-onnx", str(path), *arguments])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(PRODUCT, tmp_path / "net.onnx")
    return tmp_path / "net.onnx"


def test_a_file_in_and_a_file_out(path: Path, tmp_path: Path) -> None:
    x = normal(5, 3)
    np.save(tmp_path / "x.npy", x)
    output = tmp_path / "out.npz"
    found = run(path, "--input", f"x={tmp_path / 'x.npy'}", "-o", str(output), "--repeat", "2")
    assert found.exit_code == 0, found.output
    (expected,) = theirs(PRODUCT, x)
    np.testing.assert_allclose(np.load(output)["y"], expected, rtol=1e-5, atol=1e-6)
    low, high = re.search(r"y: float32\[5, 4\], (\S+) to (\S+), mean", found.output).groups()  # type: ignore[union-attr]
    np.testing.assert_allclose([float(low), float(high)], [expected.min(), expected.max()], 1e-4)
    assert re.search(r"first run [\d.]+ ms; of 2 more: median [\d.]+ ms, least", found.output)


def test_drawn_inputs(path: Path, tmp_path: Path) -> None:
    assert "y: float32[7, 4]" in run(path, "--input", "x=7x3", "--repeat", "0").output
    fixed = model_of([("Add", "a b", "y")], {"a": [2, 2], "b": []}, {})
    onnx.save(fixed, tmp_path / "fixed.onnx")
    assert "y: float32[2, 2]" in run(tmp_path / "fixed.onnx").output
    positions = model_of([("Gather", "w i", "y")], {"i": (7, ["n"])}, {"w": ints(5, 6)})
    onnx.save(positions, tmp_path / "ints.onnx")
    found = run(tmp_path / "ints.onnx", "--input", "i=3")
    assert "y: int64[3], 5 to 5, mean 5" in found.output


MISTAKES: list[tuple[list[str], int, str]] = [
    ([], 2, "name the input x: torch.float32[n, 3]: --input x=SHAPE"),
    (["--input", "x=2x3", "--input", "z=2"], 2, "no input 'z=2': the model has x:"),
    (["--input", "2x3"], 2, "expected NAME=SHAPE or NAME=FILE.npy, got '2x3'"),
    (["--input", "x=2x4"], 1, "expected x: torch.float32[n, 3], got torch.float32[2, 4]"),
    (["--input", "x=nowhere.npy"], 2, "nowhere.npy"),
]


@pytest.mark.parametrize(("arguments", "status", "message"), MISTAKES)
def test_mistakes(arguments: list[str], status: int, message: str, path: Path) -> None:
    found = run(path, *arguments)
    assert found.exit_code == status and message in found.output, found.output
