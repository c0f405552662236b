"""The examples in PyTorch's docstrings give in tilewright what they give in PyTorch.

`documented.py` runs them, `documented_known.py` has those that give something else, with a reason
for each. They run in processes of their own, as some change PyTorch's settings for good.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import documented
import pytest
from documented_known import KNOWN
from paths import ROOT

SCRIPT = ROOT / "tests" / "support" / "documented.py"
SAMPLE = "abs addmm bincount block_diag cat chunk cummax diag einsum fmod gather histc "
SAMPLE += "kron lerp logsumexp meshgrid nonzero outer quantile roll searchsorted tile topk unique"


def call(folder: Path, *args: str) -> None:
    tree = os.pathsep.join([str(ROOT / ".src"), os.environ.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, str(SCRIPT), *args],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": tree},
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert not child.returncode, child.stderr


def outcomes(folder: Path, runs: Sequence[tuple[str, str]]) -> list[Any]:
    """What the examples in the folder's `examples.json` give in each of the runs."""
    found = []
    for which, seeds in runs:
        call(folder, "run", which, seeds, "examples.json", "results.json")
        found += json.loads((folder / "results.json").read_text(encoding="utf-8"))
    return found


APART = (("torch", "1"), ("torch", "2"), ("tilewright", "1"))
TOGETHER = (("torch", "1,2"), ("tilewright", "1"))


@pytest.mark.slow
def test_what_differs_is_known(torch: Any, tmp_path: Path) -> None:
    call(tmp_path, "collect", "examples.json")
    examples = json.loads((tmp_path / "examples.json").read_text(encoding="utf-8"))
    assert len(examples) > 1000
    found = documented.differences(examples, *outcomes(tmp_path, APART))
    new = [f"{name} {i}: {text}" for name, i, text in found if (name, i) not in KNOWN]
    # What rounding decides is another number on another processor.
    steady = {place for place, reason in KNOWN.items() if not reason.startswith("Rounding:")}
    right = sorted(steady - {(name, i) for name, i, _ in found})
    assert not new, "examples that differ and are in no list"
    assert not right, "examples that are right by now: take them from documented_known.py"


def test_some_examples(torch: Any, tmp_path: Path) -> None:
    examples = {f"torch.{n}": documented.sources_of(getattr(torch, n)) for n in SAMPLE.split()}
    assert all(examples.values())
    (tmp_path / "examples.json").write_text(json.dumps(examples), encoding="utf-8")
    found = documented.differences(examples, *outcomes(tmp_path, TOGETHER))
    assert not [each for each in found if each[:2] not in KNOWN]


# ---- the comparison itself


def tensor(numbers: list[float], text: str = "", shape: Sequence[int] = (2,)) -> list[Any]:
    return ["tensor", ["torch.float32", [*shape], False], numbers, text]


@pytest.mark.parametrize(
    ("theirs", "again", "ours", "differs"),
    [
        (["ok", [tensor([1, 2])], ""], None, ["ok", [tensor([1, 2])], ""], False),
        (["ok", [tensor([1, 2])], ""], None, ["ok", [tensor([1, 3])], ""], True),
        # Random values: PyTorch's own differ between seeds.
        (["ok", [tensor([1, 2])], ""], ["ok", [tensor([5, 2])], ""],
         ["ok", [tensor([7, 7])], ""], False),
        (["ok", [tensor([1, 2])], ""], ["ok", [tensor([5, 2])], ""],
         ["ok", [tensor([7], "", (1,))], ""], True),
        (["ok", [tensor([1, 2], "a")], ""], None, ["ok", [tensor([1, 2], "b")], ""], True),
        (["ok", [tensor([0.1], "0.1000")], ""], None,
         ["ok", [tensor([0.10001], "0.1001")], ""], False),
        (["ok", [], "text"], None, ["ok", [], "other"], True),
        (["ok", [], ""], None, ["err", "ValueError", "no"], True),
        (["err", "ValueError", "no"], None, ["ok", [], ""], True),
        (["err", "ValueError", "no"], None, ["err", "ValueError", "another text"], False),
        (["err", "ValueError", "no"], None, ["err", "TypeError", "no"], True),
        (["err", "AssertionError", "Torch not compiled with CUDA enabled"], None,
         ["err", "RuntimeError", "No CUDA GPUs"], False),
        (["ok", [["object", "A", "<A object at 0x>"]], ""], None,
         ["ok", [["object", "A", "A(3)"]], ""], False),
        (["ok", [["number", 1.0]], ""], None, ["ok", [["number", 2.0]], ""], True),
        (["ok", [["value", True]], ""], None, ["ok", [["value", False]], ""], True),
    ],
)  # fmt: skip
def test_what_is_compared(theirs: Any, again: Any, ours: Any, differs: bool) -> None:
    again = theirs if again is None else again
    found = documented.differences({"f": ["f()"]}, {"f": [theirs]}, {"f": [again]}, {"f": [ours]})
    assert bool(found) == differs


def test_what_follows_from_a_failure_is_not_counted_again() -> None:
    fine = ["ok", [], ""]
    lost = ["err", "NameError", "name 'm' is not defined"]
    examples = {"f": ["m = f()", "m()"]}
    theirs = {"f": [fine, fine]}
    first = documented.differences(examples, theirs, theirs, {"f": [["err", "E", ""], lost]})
    alone = documented.differences(examples, theirs, theirs, {"f": [fine, lost]})
    assert [i for _, i, _ in first] == [0] and [i for _, i, _ in alone] == [1]


def test_the_page_has_the_reasons() -> None:
    text = documented.PAGE.read_text(encoding="utf-8")
    assert documented.table() in text, "write it anew: documented.py page EXAMPLES"
    assert f"{len(KNOWN)} examples give something" in " ".join(text.split())


def test_every_known_example_has_one_reason() -> None:
    assert all(reason.endswith(".") for reason in KNOWN.values())
