"""What pyproject.toml says is what is on disk, and what an install holds."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from paths import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LAYERS = ("ir", "codegen", "runtime", "frontend")


@pytest.fixture(scope="module")
def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def packages_on_disk() -> set[str]:
    packages = set()
    for layer in LAYERS:
        for init in (ROOT / layer).rglob("__init__.py"):
            folders = init.parent.relative_to(ROOT).parts
            packages.add(".".join(["tilewright", *folders[layer == "frontend" :]]))
    return packages


def test_package_list_is_what_is_on_disk(project: dict[str, Any]) -> None:
    listed = project["tool"]["setuptools"]["packages"]
    on_disk = packages_on_disk()
    assert set(listed) == on_disk, "in pyproject.toml, [tool.setuptools], write\npackages = [\n" + (
        "".join(f'  "{name}",\n' for name in sorted(on_disk)) + "]"
    )
    assert listed == sorted(set(listed)), "keep the list sorted, each package once"


def test_every_folder_of_python_is_a_package() -> None:
    bare = {
        str(path.parent.relative_to(ROOT))
        for layer in LAYERS
        for path in (ROOT / layer).rglob("*.py")
        if not (path.parent / "__init__.py").exists()
    }
    assert not bare, f"no __init__.py in {', '.join(sorted(bare))}: an install would leave it out"


def test_torch_is_no_dependency(project: dict[str, Any]) -> None:
    lists = [project["project"]["dependencies"]]
    lists += project["project"]["optional-dependencies"].values()
    names = {
        re.split(r"[^\w.-]", requirement, maxsplit=1)[0].lower()
        for requirements in lists
        for requirement in requirements
    }
    assert "numpy" in names
    assert not {name for name in names if "torch" in name}


def test_version_is_one(project: dict[str, Any]) -> None:
    from tilewright.version import tilewright as own

    version = project["project"]["version"]
    assert own == version
    try:
        installed = importlib.metadata.version("tilewright")
    except importlib.metadata.PackageNotFoundError:
        return
    assert installed == version


@pytest.mark.slow
def test_wheel_holds_the_whole_package(tmp_path: Path, run_python) -> None:
    """Build as a release does, from a copy, and import what was built from a bare folder."""
    pytest.importorskip("build")
    tree = tmp_path / "tree"
    for name in LAYERS:
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    made = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", str(tmp_path / "dist"), str(tree)],
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        capture_output=True,
        text=True,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    wanted = {"tilewright/py.typed"}
    for layer in LAYERS:
        for path in [
            *(tree / layer).rglob("*.py"),
            *(tree / layer).rglob("*.pyi"),
            *(tree / layer).rglob("*.pack"),
        ]:
            parts = path.relative_to(tree).parts
            wanted.add("/".join(("tilewright", *parts[layer == "frontend" :])))
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if name.startswith("tilewright/")}
        archive.extractall(tmp_path / "site")
    assert held == wanted
    code = "import tilewright, tilewright.ir, tilewright.runtime; print(tilewright.__file__)"
    printed = run_python(code, env={"PYTHONPATH": str(tmp_path / "site")})
    assert Path(printed.strip()).is_relative_to(tmp_path / "site")
