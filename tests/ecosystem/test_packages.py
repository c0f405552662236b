"""Packages that need torch, as the index has them, in an environment where torch is tilewright.

An environment is made once. Small random models run; nothing else is downloaded. Numbers are held
to those of PyTorch in `numbers`. CI runs a sample: three light packages.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from ecosystem_runs import (
    NUMBERS,
    TASKS,
    Environment,
    Failed,
    compared,
    files,
    packages,
    with_tilewright,
)

pytestmark = pytest.mark.ecosystem

SAMPLE = {
    "einops: rearrange, reduce, repeat, einsum, pack, layers",
    "safetensors: saved models, slices, half types",
    "torchmetrics: classification, regression, images, texts",
}
"""Tasks of `small_packages` that need their own package and nothing else."""


def _made(folder: Path, requirements: list[str]) -> Environment:
    try:
        return with_tilewright(folder, requirements)
    except Failed as error:
        pytest.skip(f"the packages can't be installed here: {str(error)[-300:]}")


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    yield _made(tmp_path_factory.mktemp("sample"), packages()[:3])


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """All packages; TW_ECOSYSTEM_PYTHON names the Python of an environment that is there."""
    given = os.environ.get("TW_ECOSYSTEM_PYTHON")
    if given:
        yield Environment(Path(given).parents[1])
    else:
        yield _made(tmp_path_factory.mktemp("everything"), packages())


def _held(environment: Environment, file: str, *only: str) -> list[str]:
    """What tasks have wrong. TW_ECOSYSTEM_RESULTS names a folder in which results are kept."""
    wanted = {each["task"]: each for each in json.loads((NUMBERS / f"{file}.json").read_text())}
    results = list(environment.run(file, *only))
    folder = os.environ.get("TW_ECOSYSTEM_RESULTS")
    if folder and not only:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{file}.json").write_text(json.dumps(results))
    assert {r["task"] for r in results} == set(only or wanted)
    return [f"{r['task']}: {d}" for r in results for d in compared(r, wanted[r["task"]])[:3]]


@pytest.mark.slow
def test_the_environment_has_a_torch(sample: Environment) -> None:
    code = "import importlib.metadata as m, torch; print(m.version('torch') == torch.__version__)"
    assert sample.call("-c", code) == "True\n"
    assert "No broken requirements" in sample.pip("check")


@pytest.mark.slow
def test_the_sample(sample: Environment) -> None:
    assert not _held(sample, "small_packages", *sorted(SAMPLE))


def test_every_file_has_numbers() -> None:
    assert {p.stem for p in NUMBERS.glob("*.json")} == set(files()), TASKS


@pytest.mark.parametrize("file", files())
def test_tasks(everything: Environment, file: str) -> None:
    assert not _held(everything, file)


def test_pip_finds_nothing_wrong(everything: Environment) -> None:
    assert "No broken requirements" in everything.pip("check")
