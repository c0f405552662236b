"""tools/link_tree.py: the layout type checkers and PYTHONPATH=.src see."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest
from paths import ROOT


@pytest.fixture(scope="module")
def link_tree() -> ModuleType:
    spec = importlib.util.spec_from_file_location("link_tree", ROOT / "tools" / "link_tree.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for folder in ("ir", "codegen", "runtime", "frontend/nn", "frontend/__pycache__"):
        (tmp_path / folder).mkdir(parents=True)
    for file in ("ir/__init__.py", "frontend/__init__.py", "frontend/nn/__init__.py"):
        (tmp_path / file).write_text("")
    return tmp_path


def links(repository: Path) -> dict[str, str]:
    package = repository / ".src" / "tilewright"
    return {entry.name: os.readlink(entry) for entry in package.iterdir()}


def test_links_are_relative_and_complete(link_tree: ModuleType, repository: Path) -> None:
    assert link_tree.build(repository) == repository / ".src"
    assert links(repository) == {
        "__init__.py": "../../frontend/__init__.py",
        "nn": "../../frontend/nn",
        "ir": "../../ir",
        "codegen": "../../codegen",
        "runtime": "../../runtime",
    }
    assert (repository / ".src" / "tilewright" / "nn" / "__init__.py").is_file()


def test_a_second_run_changes_nothing(link_tree: ModuleType, repository: Path) -> None:
    link_tree.build(repository)
    package = repository / ".src" / "tilewright"
    before = {entry.name: entry.lstat().st_mtime_ns for entry in package.iterdir()}
    link_tree.build(repository)
    assert {entry.name: entry.lstat().st_mtime_ns for entry in package.iterdir()} == before


def test_follows_additions_removals_and_wrong_links(
    link_tree: ModuleType, repository: Path
) -> None:
    link_tree.build(repository)
    package = repository / ".src" / "tilewright"
    (repository / "frontend" / "nn" / "__init__.py").unlink()
    (repository / "frontend" / "nn").rmdir()
    (repository / "frontend" / "optim.py").write_text("")
    (package / "ir").unlink()
    (package / "ir").symlink_to("../../elsewhere")
    link_tree.build(repository)
    found = links(repository)
    assert "nn" not in found
    assert found["optim.py"] == "../../frontend/optim.py"
    assert found["ir"] == "../../ir"


def test_a_file_that_hides_a_layer_is_refused(link_tree: ModuleType, repository: Path) -> None:
    (repository / "frontend" / "ir").mkdir()
    with pytest.raises(SystemExit, match="hides the layer"):
        link_tree.build(repository)
