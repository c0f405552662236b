"""What a type checker makes of programs of users, and of names that are made while importing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from conftest import load_script

ROOT = Path(__file__).resolve().parents[1]
TYPED = ROOT / "tests" / "typed"
EXPECTED = re.compile(r"# E: (.+)$")
FOUND = re.compile(r"(\w+)\.py:(\d+): error: (.+?)  \[[\w-]+\]$")


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, int], str]:
    """What mypy says of the files in tests/typed, in strict mode, by file and line."""
    api = pytest.importorskip("mypy.api")
    config = tmp_path_factory.mktemp("mypy") / "mypy.ini"
    tree = load_script(ROOT / "tools" / "link_tree.py").build(ROOT)
    config.write_text(
        f"[mypy]\nstrict = true\nmypy_path = {tree}\nexplicit_package_bases = true\n"
        "pretty = false\nfollow_imports = silent\n"
        + "".join(
            f"[mypy-{name}.*]\nignore_missing_imports = true\nfollow_imports = skip\n"
            for name in ("cuda", "llvmlite", "ml_dtypes", "networkx", "onnx", "tqdm", "triton")
        )
    )
    cache = ROOT / ".mypy_cache" / "typed"
    files = [str(path) for path in sorted(TYPED.glob("*.py"))]
    out, err, _ = api.run(["--config-file", str(config), "--cache-dir", str(cache), *files])
    assert not err
    found: dict[tuple[str, int], str] = {}
    for line in out.splitlines():
        if (match := FOUND.search(line)) is not None:
            found[match[1], int(match[2])] = match[3]
        else:
            assert "error:" not in line, line
    return found


@pytest.mark.parametrize("name", ["training", "expressions"])
def test_users_code_is_typed(name: str, errors: dict[tuple[str, int], str]) -> None:
    assert [(line, text) for (file, line), text in errors.items() if file == name] == []


def test_mistakes_are_found(errors: dict[tuple[str, int], str]) -> None:
    lines = (TYPED / "wrong.py").read_text(encoding="utf-8").splitlines()
    wanted = {n: m[1] for n, text in enumerate(lines, 1) if (m := EXPECTED.search(text))}
    found = {line: text for (file, line), text in errors.items() if file == "wrong"}
    assert len(wanted) > 20
    assert found.keys() == wanted.keys(), found.keys() ^ wanted.keys()
    for line, text in wanted.items():
        assert text in found[line], f"wrong.py:{line}"


def test_the_sample_trains(tmp_path: Path) -> None:
    script = load_script(TYPED / "training.py")
    losses = script.main(tmp_path / "model.pt", count=48, epochs=4)
    assert sum(losses[-3:]) < sum(losses[:3])


def test_stubs_are_what_the_declarations_say() -> None:
    pytest.importorskip("ruff", reason="stubs are formatted by ruff")
    stubs = load_script(ROOT / "tools" / "stubs.py")
    assert [path.name for path in stubs.stale()] == [], "run python tools/stubs.py"
