"""The declarations of public ops: what users see follows from them, and from nothing else."""

from __future__ import annotations

import ast
import contextlib
import importlib
import inspect
import pickle
import types
from collections.abc import Callable, Iterator
from typing import Any

import api_cases
import pytest
from paths import ROOT

import tilewright as tw
from tilewright import nn, publish, recording
from tilewright.amp import autocast
from tilewright.functions.call import DECLARED, Declaration, public
from tilewright.nn import functional as F
from tilewright.recording import builders, calls

for _module in publish.LATER:
    importlib.import_module(f"tilewright.{_module}")
OPS = sorted(DECLARED)
LATE = {name for names in publish.LATER.values() for each in names for name in each.split()}


def names_of(op: Declaration) -> Iterator[tuple[str, Any, Any]]:
    """(name, function, method) for each name that users see."""
    for each in (op.name, *op.aliases):
        yield each, op.function, op.method
        yield f"{each}_", op.in_place_function, op.in_place


def test_what_is_declared_is_published() -> None:
    for op in DECLARED.values():
        for shown, function, method in names_of(op):
            if function is not None:
                found = getattr(tw, shown)
                assert publish.COPIES.get(found, found) is function and shown in tw.__all__
                assert found.__name__ == shown or shown in LATE
            if method is not None and shown not in LATE:
                found = getattr(tw.Tensor, shown)
                assert publish.COPIES.get(found, found) is method, shown
                assert found.__name__ == shown
        for operator, method in (op.operators or {}).items():
            assert getattr(tw.Tensor, operator) is method, operator


def test_every_name_is_pytorchs(torch: Any) -> None:
    for op in DECLARED.values():
        for shown, function, method in names_of(op):
            # PyTorch has abs_ as a function, and absolute_ as a method only.
            assert function is None or hasattr(torch, shown) or shown == "absolute_"
            assert method is None or hasattr(torch.Tensor, shown), shown


def test_ops_that_come_later_are_those_that_their_modules_declare() -> None:
    eager = {name for name in OPS if name in vars(publish) or not _is_late(DECLARED[name])}
    late = [DECLARED[name] for name in OPS if name not in eager]
    for module, names in publish.LATER.items():
        home = importlib.import_module(f"tilewright.{module}")
        here = [op for op in late if _is_in(op, home)]
        assert {op.name for op in here if op.function} == set(names.functions.split())
        assert {op.name for op in here if op.method} == set(names.methods.split())


def _is_late(op: Declaration) -> bool:
    return any(_is_in(op, importlib.import_module(f"tilewright.{m}")) for m in publish.LATER)


def _is_in(op: Declaration, module: types.ModuleType) -> bool:
    function = op.function or op.method
    home = getattr(inspect.unwrap(function), "__module__", "") if function else ""
    return home == module.__name__ or home.startswith(module.__name__ + ".")


@pytest.mark.parametrize("operands", [1, 2])
def test_elementwise_functions_are_pickled_by_their_name(operands: int) -> None:
    found = [op.function for op in DECLARED.values() if op.operands == operands]
    assert len(found) > 20 and all(pickle.loads(pickle.dumps(f)) is f for f in found)


def test_an_op_is_declared_once() -> None:
    with pytest.raises(ValueError, match="sum is declared twice"):
        public("sum")(lambda input: input)
    build = lambda x: x  # noqa: E731
    builders.builder("one")(build)
    builders.builder("one")(build)
    with pytest.raises(ValueError, match="a builder is declared twice"):
        builders.builder("other")(build)


# ---- cases -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OPS)
def test_every_op_has_a_case(name: str) -> None:
    assert name in api_cases.covered(DECLARED), (
        f"{name} is declared, and no case of tests/support/api_cases.py calls it: add one, or "
        "name in ELSEWHERE the test that compares it with PyTorch"
    )


@pytest.mark.parametrize("name", sorted(api_cases.ELSEWHERE))
def test_what_is_tested_elsewhere_is(name: str) -> None:
    text = (ROOT / "tests" / api_cases.ELSEWHERE[name]).read_text(encoding="utf-8")
    assert name in DECLARED and name in text
    assert name not in api_cases.called(DECLARED), f"{name} has a case: it needs no other place"


# ---- names of private functions --------------------------------------------------------------


def test_builders_are_not_asked_for_their_names() -> None:
    """`__name__` is read of classes, modules and what users hand in, and never of a builder."""
    found = []
    for path in sorted((ROOT / "frontend").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_read = isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
            if is_read and node.attr in ("__name__", "__qualname__"):  # type: ignore[attr-defined]
                found.append((path, ast.unparse(node.value)))  # type: ignore[attr-defined]
            asks = isinstance(node, ast.Call) and getattr(node.func, "id", None) == "getattr"
            if asks and ast.unparse(node.args[1]) in ("'__name__'", "'__qualname__'"):  # type: ignore[attr-defined]
                found.append((path, ast.unparse(node.args[0])))  # type: ignore[attr-defined]
    suspects = {
        f"{path.relative_to(ROOT)}: {value}.__name__"
        for path, value in found
        if value.lstrip("_") in ("build", "builder", "op", "method", "call")
    }
    assert not suspects


def _outcomes() -> list[Any]:
    """Errors, names of gradients and dtypes under autocast of some calls."""
    recording.flush()
    recording.clear_tables()
    x = tw.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    half = tw.tensor([1.0, 2.0]).half()
    found: list[Any] = [
        f(x).grad_fn.name()
        for f in (
            lambda x: x.sum(),
            lambda x: x.sum(0),
            lambda x: x @ x,
            lambda x: x.std(),
            lambda x: x**2.5,
            lambda x: F.linear(x, x),
            lambda x: x.clamp(min=2),
            lambda x: 2 / x,
            lambda x: x.softmax(-1),
        )
    ]
    for call in (lambda: tw.sum(3), lambda: tw.softmax("x", 0), lambda: tw.cumsum(1.5, 0)):  # type: ignore[attr-defined]
        with pytest.raises(TypeError) as error:
            call()
        found.append(str(error.value).partition(", at ")[0])
    with autocast("cpu"):
        found += [str(t.dtype) for t in (x @ x, F.linear(x, x), tw.cat([half, x[0]]), x.prod())]
    found += [str((half * 0.1).tolist()), str((tw.tensor([1]) / 3).tolist())]
    return found


def test_renaming_every_builder_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _outcomes()
    renamed = 0
    for build, _ in builders.all_facts():
        if isinstance(build, types.FunctionType):
            monkeypatch.setattr(build, "__name__", "x")
            monkeypatch.setattr(build, "__qualname__", "x")
            renamed += 1
    assert renamed > 150 and _outcomes() == before


# ---- builders --------------------------------------------------------------------------------


def test_every_builder_that_a_case_calls_is_declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its errors and its `grad_fn` had no name."""
    import numpy as np
    from oracle import sample

    seen: set[Any] = set()
    record: Callable[..., Any] = calls._record

    def spy(build: Any, args: Any) -> Any:
        seen.add(build)
        return record(build, args)

    monkeypatch.setattr(calls, "_record", spy)
    recording.clear_tables()
    for _, call, shapes in api_cases.every_case():
        tensors = [tw.tensor(np.array(sample(s, "float32", i))) for i, s in enumerate(shapes)]
        try:
            call(tw, *tensors)
        except (RuntimeError, IndexError, ValueError, TypeError, NotImplementedError):
            continue
    with contextlib.suppress(RuntimeError, IndexError):
        recording.flush()  # what the calls raise when they run
    nameless = {b for b in seen if isinstance(b, types.FunctionType) and builders.facts(b) is None}
    assert not nameless


# ---- the public list -------------------------------------------------------------------------


def test_rooms_of_our_own_are_no_names_of_torch(run_python: Any) -> None:
    code = """
import tilewright as torch
from tilewright import recording
import tilewright.functions.call as call
print([n for n in ("counting", "recording", "functions", "publish", "exchange", "ir", "runtime",
                   "codegen", "methods", "devices") if hasattr(torch, n)])
print(recording.record is not None, call.public is not None, torch.testing is not None)
print(sorted(n for n in dir(torch) if n in ("recording", "functions", "Any", "annotations", "os")))
"""
    assert run_python(code).splitlines() == ["[]", "True True True", "[]"]


def test_the_public_list_is_pytorchs(torch: Any) -> None:
    ours = {  # what PyTorch has not
        "absolute_", "explain", "get_half_rounding", "set_half_rounding", "tune",
    }  # fmt: skip
    assert {n for n in tw.__all__ if not hasattr(torch, n)} == ours
    assert {n for n in publish.MODULES if not hasattr(torch, n)} == {"aot", "inspection"}
    assert set(tw.__all__) | publish.MODULES <= set(dir(tw))
    assert nn is tw.nn


def test_the_table_of_ops_in_the_docs_is_up_to_date() -> None:
    tool = importlib.util.spec_from_file_location("list_ops", ROOT / "tools" / "list_ops.py")
    assert tool is not None and tool.loader is not None
    module = importlib.util.module_from_spec(tool)
    tool.loader.exec_module(module)
    text = (ROOT / "docs" / "ops.md").read_text(encoding="utf-8")
    assert text == module.page(), "run `PYTHONPATH=.src python tools/list_ops.py`"
