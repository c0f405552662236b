"""Test files share nothing but what stands in tests/support, and pytest finds no test elsewhere."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from paths import SUPPORT, TESTS

FILES = sorted(TESTS.rglob("*.py"))


def imported(path: Path) -> list[tuple[int, str]]:
    """(line, module) of each import in a file, those inside functions too."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append((node.lineno, node.module))
    return found


def borrowed(path: Path) -> list[str]:
    """Imports of test files: a second copy of each would be collected, or its fixtures missed."""
    return [
        f"{path.name}:{line}: {module}"
        for line, module in imported(path)
        if any(part.startswith("test_") for part in module.split("."))
    ]


def test_no_file_imports_a_test_file() -> None:
    found = [each for path in FILES for each in borrowed(path)]
    assert not found, f"move what is shared to {SUPPORT.name}/: {found}"


def test_support_has_no_tests() -> None:
    for path in SUPPORT.glob("*.py"):
        names = [n.name for n in ast.parse(path.read_text()).body if isinstance(n, ast.FunctionDef)]
        assert not [n for n in names if n.startswith("test_")], path.name


@pytest.mark.parametrize("text", ["import test_lower", "from test_ops import probe"])
def test_what_is_forbidden(tmp_path: Path, text: str) -> None:
    path = tmp_path / "test_new.py"
    path.write_text(f"def f():\n    {text}\n")
    assert len(borrowed(path)) == 1
