"""What a type checker makes of programs of users, and of names that are made while importing."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import re
from collections import abc
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import api_cases
import numpy as np
import pytest
from conftest import load_script
from oracle import sample
from paths import ROOT

import tilewright as tw
from tilewright import recording
from tilewright.functions.call import DECLARED

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
    assert [path.name for path in STUBS.stale()] == [], "run python tools/stubs.py"


# ---- annotations of ops, beside what the cases give and get ----------------------------------

STUBS = load_script(ROOT / "tools" / "stubs.py")


def _meaning(name: str, module: str) -> Any:
    home = f"tilewright{module}" if module.startswith(".") else module
    return getattr(importlib.import_module(home), name)


NAMES: dict[str, Any] = {name: _meaning(name, module) for name, module in STUBS.SOURCES.items()}
"""What the names in annotations mean."""
NAMES |= {"Self": tw.Tensor, "np": np}


def fits(value: Any, annotation: Any) -> bool:
    """Whether a checker would take the value for what the annotation says."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if annotation is None:
        return value is None
    if annotation is float:
        return isinstance(value, (int, float))
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        if inner[-1] is Ellipsis:
            return isinstance(value, tuple) and all(fits(each, inner[0]) for each in value)
        return len(value) == len(inner) and all(map(fits, value, inner))
    if origin is abc.Sequence:
        return isinstance(value, Sequence) and all(fits(each, inner[0]) for each in value)
    return isinstance(value, annotation)


def said(form: ast.FunctionDef, args: tuple[Any, ...], options: dict[str, Any]) -> dict[str, Any]:
    """What a form says of each argument, and of the result; {} if it doesn't take them."""
    own = form.args
    text = f"lambda {ast.unparse(_bare(own))}: None"
    try:
        bound = inspect.signature(eval(text)).bind(*args, **options).arguments
    except TypeError:
        return {}
    each = [*own.posonlyargs, *own.args, *own.kwonlyargs, *filter(None, (own.vararg,))]
    found = {a.arg: ast.unparse(a.annotation or ast.Name("Any")) for a in each}
    return {
        "bound": bound,
        "args": {name: eval(found[name], NAMES) for name in bound if name in found},
        "result": eval(ast.unparse(form.returns or ast.Name("Any")), NAMES),
        "star": own.vararg.arg if own.vararg else None,
    }


def _bare(arguments: ast.arguments) -> ast.arguments:
    """The arguments without annotations, with None for each default."""
    none = ast.Constant(None)

    def plain(given: list[ast.arg]) -> list[ast.arg]:
        return [ast.arg(a.arg) for a in given]

    return ast.arguments(
        posonlyargs=plain(arguments.posonlyargs),
        args=plain(arguments.args),
        vararg=ast.arg(arguments.vararg.arg) if arguments.vararg else None,
        kwonlyargs=plain(arguments.kwonlyargs),
        kw_defaults=[none if default else None for default in arguments.kw_defaults],
        kwarg=ast.arg(arguments.kwarg.arg) if arguments.kwarg else None,
        defaults=[none] * len(arguments.defaults),
    )


def is_right(form: ast.FunctionDef, args: Any, options: dict[str, Any], result: Any) -> bool:
    known = said(form, args, options)
    if not known:
        return False
    for name, annotation in known["args"].items():
        given = known["bound"][name]
        if not all(
            fits(each, annotation) for each in (given if name == known["star"] else (given,))
        ):
            return False
    return fits(result, known["result"])


def test_annotations_of_ops_are_true(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every case of the API tests: what it gives an op, and what it gets, is what the op says."""
    stubs = load_script(ROOT / "tools" / "stubs.py")
    wrong: list[str] = []
    depth = 0

    def watched(name: str, function: Any) -> Any:
        described = stubs.forms(function)

        def call(*args: Any, **options: Any) -> Any:
            nonlocal depth
            depth += 1
            try:
                result = function(*args, **options)
            finally:
                depth -= 1
            checked = depth == 0 and result is not NotImplemented
            if checked and not any(is_right(form, args, options, result) for form in described):
                kinds = [type(a).__name__ for a in (*args, *options.values())]
                wrong.append(f"{name}({', '.join(kinds)}, {[*options]}) -> {type(result).__name__}")
            return result

        return call

    functions = {}
    for op in DECLARED.values():
        for name in (op.name, *op.aliases):
            if op.function is not None:
                functions[name] = watched(f"torch.{name}", op.function)
            if op.method is not None:
                monkeypatch.setattr(tw.Tensor, name, watched(f"Tensor.{name}", op.method))
        for name, method in (op.operators or {}).items():
            if not name.startswith("__i"):
                monkeypatch.setattr(tw.Tensor, name, watched(f"Tensor.{name}", method))
    late = {name: getattr(tw, name) for name in ("nn", "linalg", "special")}
    module = SimpleNamespace(**{**vars(tw), **functions, **late})
    calls = 0
    for _, call, shapes in api_cases.every_case():
        tensors = [tw.tensor(np.array(sample(s, "float32", i))) for i, s in enumerate(shapes)]
        try:
            call(module, *tensors)
            calls += 1
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            continue
    with contextlib.suppress(RuntimeError, IndexError):
        recording.flush()  # what the calls raise when they run
    assert calls > 400
    assert not wrong, "\n".join(sorted(set(wrong)))
