"""What the readme and the examples show runs as it stands there."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

RUN = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], None, '__main__')"


BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)


def test_quick_tour(run_python: Any) -> None:
    out = run_python(BLOCKS[0])
    assert [line.split()[0] for line in out.splitlines()] == ["0", "20", "40", "60", "80"]
    first, *_, last = (float(line.split()[1]) for line in out.splitlines())
    assert last < first


def test_gradients_of_examples(run_python: Any) -> None:
    assert len(BLOCKS) == 2
    assert run_python(BLOCKS[1]) == "torch.Size([32, 4, 3])\n"


def test_introduction(run_python: Any) -> None:
    out = run_python((ROOT / "examples" / "intro.py").read_text())
    assert "tensor([[4.5000, 4.5000],\n        [4.5000, 4.5000]])" in out
    correct = int(re.search(r"(\d+) of 512 points are right", out)[1])  # type: ignore[index]
    assert correct > 460
    assert out.endswith("True\n")


@pytest.mark.slow
def test_digits(run_python: Any, tmp_path: Path) -> None:
    for package in ("sklearn", "onnxruntime", "triton"):
        pytest.importorskip(package)
    script = str(ROOT / "examples" / "digits.py")
    out = run_python(RUN, script, "--out", str(tmp_path))
    score = float(re.search(r"([\d.]+)% right of the held out", out)[1])  # type: ignore[index]
    assert score >= 98
    assert (tmp_path / "digits.onnx").is_file()
    assert (tmp_path / "training_step" / "graph.mlir").is_file()
    assert list((tmp_path / "training_step" / "sm_90").glob("*.py"))


LETTERS = "etaoinshrdlu"


@pytest.mark.slow
def test_gpt(run_python: Any, tmp_path: Path) -> None:
    text, out = tmp_path / "text.txt", tmp_path / "gpt.pt"
    draw = random.Random(0)
    words = ["".join(draw.choices(LETTERS, k=draw.randint(2, 7))) for _ in range(100)]
    text.write_text(" ".join(draw.choices(words, k=30_000)))
    script = [str(ROOT / "examples" / "gpt.py"), str(text), "--out", str(out), "--write", "20"]
    losses = []
    for more in (["--steps", "40"], ["--steps", "80", "--resume"]):
        said = run_python(RUN, *script, *more)
        losses.append(float(re.search(r"held-out loss ([\d.]+)", said)[1]))  # type: ignore[index]
    assert losses[1] < losses[0] < math.log(len(LETTERS) + 1)  # what a guess costs
