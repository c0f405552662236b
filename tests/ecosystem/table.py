"""Write docs/ecosystem.md from a run: `python tests/ecosystem/table.py RESULTS`.

RESULTS is the folder in which `make test-ecosystem` keeps its results if TW_ECOSYSTEM_RESULTS names
it: one JSON file for each file of tasks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

from ecosystem_runs import FOLDER, NUMBERS, compared, packages
from paths import DOCS

_HEAD = """# The ecosystem

Packages that need torch run on tilewright as the index has them, and so do the programs that many
people start from. `tests/ecosystem/tasks` has small programs of such packages' users; their numbers
are compared with PyTorch's, which `tests/ecosystem/reference.py` keeps in
`tests/ecosystem/numbers`. `tests/ecosystem/table.py` writes this page from a run of
`make test-ecosystem`.

In the environment of a run `tilewright as-torch install` stands for torch, pip resolves what the
packages ask for, and `pip check` finds nothing wrong. The seconds are those of a task's second run
in one process, when PyTorch's kernels and ours are warm; both come from a machine with two cores
that other work kept busy, so read them as orders of magnitude. [Benchmarks](benchmarks.md) measure.

torchtext isn't among the packages: its last release is built for PyTorch 2.3, and imports with no
PyTorch of today.

## Walks over architectures

Two walks built models of every kind that they reached, made small, and compared outputs and the
gradients of a training step with PyTorch's (2026-11-26). The walks below keep those whose
mechanisms differ.

| package | compared | agree in float32 | agree in float64 | not settled |
|---|---|---|---|---|
| transformers, of 804 configurations | 193 | 189 | 1 (deformable_detr) | 3 |
| timm, of 98 families | 86 | 43 | 20 | 23 |

transformers' three are wav2vec2 and groupvit, which draw Gumbel noise, and LeViT, whose batch norms
see two values. timm's float32 steps differ where batch norms see a few values of a picture of 32
pixels, and rounding grows; the 22 that were computed again in float64 agree, but for ghostnet_050,
whose dropout draws, and LeViT, which agrees with larger pictures. The others of timm's 23 weren't
computed again. For most of transformers' other configurations PyTorch's numbers weren't there yet.
"""


def _rows(file: str, results: list[dict[str, Any]]) -> list[str]:
    wanted = {each["task"]: each for each in json.loads((NUMBERS / f"{file}.json").read_text())}
    rows = []
    for result in results:
        reference = wanted[result["task"]]
        wrong = compared(result, reference)
        ours = f"{result['seconds'][-1]:.2f}" if result["seconds"] else ""
        rows.append(
            f"| {result['task']} | {'right' if not wrong else 'differs: ' + wrong[0]} | {ours} | "
            f"{reference['seconds'][-1]:.2f} |"
        )
    return rows


def main(folder: Path) -> None:
    pinned = dict(line.split("==") for line in packages())
    lines = [_HEAD, "## Packages\n", "| package | version |\n|---|---|"]
    lines += [f"| {name} | {version} |" for name, version in sorted(pinned.items())]
    for path in sorted(folder.glob("*.json")):
        first = (FOLDER / "tasks" / f"{path.stem}.py").read_text().split('"""')[1].splitlines()[0]
        lines += [f"\n## {first.rstrip('.')}\n"]
        lines += ["| what is run | result | seconds | PyTorch's |\n|---|---|---|---|"]
        lines += _rows(path.stem, json.loads(path.read_text()))
    (DOCS / "ecosystem.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
