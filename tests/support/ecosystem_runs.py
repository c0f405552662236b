"""Environments in which the tasks of `tests/ecosystem` run, and the comparison of numbers."""

from __future__ import annotations

import json
import math
import os
import subprocess
import venv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paths import ROOT, TESTS

FOLDER = TESTS / "ecosystem"
TASKS, NUMBERS = FOLDER / "tasks", FOLDER / "numbers"
TORCH = "torch==2.13.0"


class Failed(RuntimeError):
    """A command that ended with an error, and the end of what it printed."""


@dataclass(frozen=True)
class Environment:
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    def call(self, *args: str, cwd: Path | None = None) -> str:
        """What Python prints for these arguments."""
        kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "VIRTUAL_ENV")}
        done = subprocess.run(
            [str(self.python), *args],
            env={**kept, "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"},
            cwd=cwd or self.folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise Failed((done.stdout + done.stderr)[-4000:])
        return done.stdout

    def pip(self, *args: str) -> str:
        return self.call("-m", "pip", "--disable-pip-version-check", *args)

    def run(self, file: str, *only: str) -> Iterator[dict[str, Any]]:
        """The results of a file's tasks: see `tasks/task.py`."""
        work = self.folder / "work"
        work.mkdir(exist_ok=True)
        for line in self.call(str(TASKS / "task.py"), file, *only, cwd=work).splitlines():
            if line.startswith('{"task"'):
                yield json.loads(line)


def files() -> list[str]:
    """The files of tasks, by name."""
    return sorted(p.stem for p in TASKS.glob("*.py") if p.stem not in ("task", "training"))


def compared(result: dict[str, Any], reference: dict[str, Any]) -> list[str]:
    """What a task's runs, the first and the one that met its graphs again, have wrong."""
    if "error" in result:
        return [result["error"]]
    tolerance, wanted = result["tolerance"], reference["numbers"]
    return [d for run in result["runs"] for d in differences(run, wanted, tolerance)]


def packages(*names: str) -> list[str]:
    """The pinned requirements of some packages, or of all."""
    lines = (FOLDER / "packages.txt").read_text().splitlines()
    pinned = [line for line in lines if line and not line.startswith("#")]
    return [line for line in pinned if not names or line.split("==")[0] in names]


def with_tilewright(folder: Path, requirements: list[str]) -> Environment:
    """An environment where `torch` is this tree. pip itself resolves the packages' demands."""
    venv.create(folder, with_pip=True)
    made = Environment(folder)
    made.pip("install", "-q", "-e", f"{ROOT}[cpu]")
    made.call("-m", "tilewright", "as-torch", "install")
    made.pip("install", "-q", *requirements)
    return made


def with_pytorch(folder: Path, requirements: list[str]) -> Environment:
    """An environment with PyTorch, whose numbers are the oracle."""
    venv.create(folder, with_pip=True)
    made = Environment(folder)
    made.pip("install", "-q", TORCH, *requirements)
    return made


def differences(got: Any, want: Any, tolerance: float, at: str = "") -> list[str]:
    """Where two digests differ, by more than the tolerance where they hold floating numbers."""
    if isinstance(want, dict) and "elements" in want and isinstance(got, dict):
        if got.get("shape") != want["shape"]:
            return [f"{at}: shape {got.get('shape')}, PyTorch has {want['shape']}"]
        size = max([1e-3, *(abs(x) for x in want["elements"] if math.isfinite(x))])
        pairs = [(got["total"], want["total"]), *zip(got["elements"], want["elements"])]
        for place, (a, b) in enumerate(pairs):
            name = "total" if place == 0 else f"element {place - 1} of those kept"
            if isinstance(b, int):
                if a != b:
                    return [f"{at}: {name} is {a}, PyTorch has {b}"]
            elif not _close(a, b, tolerance * size):
                return [f"{at}: {name} is {a:.6g}, PyTorch has {b:.6g}"]
        return []
    if isinstance(want, dict) and isinstance(got, dict):
        if want.keys() != got.keys():
            return [f"{at}: names {sorted(got)}, PyTorch has {sorted(want)}"]
        return [d for k in want for d in differences(got[k], want[k], tolerance, f"{at}.{k}")]
    if isinstance(want, list) and isinstance(got, list) and len(want) == len(got):
        return [
            d
            for i, (a, b) in enumerate(zip(got, want))
            for d in differences(a, b, tolerance, f"{at}[{i}]")
        ]
    if isinstance(want, float) and isinstance(got, float):
        return (
            [] if _close(got, want, tolerance * max(1e-3, abs(want))) else [f"{at}: {got} {want}"]
        )
    return (
        [] if got == want and type(got) is type(want) else [f"{at}: {got!r}, PyTorch has {want!r}"]
    )


def _close(a: float, b: float, bound: float) -> bool:
    return a == b or (math.isnan(a) and math.isnan(b)) or abs(a - b) <= bound
