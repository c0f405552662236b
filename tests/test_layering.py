"""Dependencies point one way, ir <- codegen <- runtime <- frontend, and torch is in none of them.

Every import statement is read, also inside functions and under TYPE_CHECKING. Inside a layer
imports are relative; across layers they are absolute, `tilewright.X`.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("ir", "codegen", "runtime", "frontend")  # each may import those to its left
FOREIGN = {"torch", "torchvision", "torchaudio", "functorch"}
HEAVY = (
    "cuda",
    "llvmlite",
    "matplotlib",
    "networkx",
    "onnx",
    "onnxruntime",
    "rich",
    "scipy",
    "sklearn",
    "torch",
    "tqdm",
    "triton",
    "typer",
    "xdsl",
)


def layer_of(module: str) -> str | None:
    """The layer an absolute module name belongs to; None outside tilewright."""
    head, *rest = module.split(".")
    if head != "tilewright":
        return None
    return rest[0] if rest and rest[0] in LAYERS else "frontend"


def package_of(path: str) -> list[str]:
    """The package a file below a layer is in, from its path relative to the repository root."""
    layer, *folders = Path(path).parent.parts
    return ["tilewright", *([] if layer == "frontend" else [layer]), *folders]


def imported_modules(tree: ast.AST, package: list[str]) -> Iterator[tuple[int, bool, str]]:
    """(line, relative, absolute module name) of each import; a `from` gives one for each name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, False, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - (node.level - 1)] if node.level else []
            if node.level and not base:
                yield node.lineno, True, "<above tilewright>"
                continue
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                yield node.lineno, node.level > 0, ".".join([*base, alias.name])
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            argument = node.args[0].value
            dynamic = name in ("import_module", "__import__") and isinstance(argument, str)
            if dynamic and not argument.startswith("."):
                yield node.lineno, False, argument


def spelling(target: str, own: str) -> str:
    """How a file of layer `own` writes the import of layer `target`."""
    if target == own:
        return "it relative: inside a layer imports are"
    return "it absolute: tilewright" + ("" if target == "frontend" else f".{target}")


def violations(path: str, source: str) -> list[str]:
    """What the imports of one file break, as lines `path:line: what`."""
    own = Path(path).parts[0]
    found = []
    for line, relative, module in imported_modules(ast.parse(source), package_of(path)):
        head, target = module.split(".")[0], layer_of(module)
        wrong = None
        if relative and target == own:
            pass
        elif head in FOREIGN:
            wrong = f"{head} has no place in the package"
        elif head in LAYERS:
            wrong = f"a second copy of the layer; write {spelling(head, own)}"
        elif relative and target is None:
            wrong = "there is nothing above tilewright"
        elif target is None:
            pass
        elif LAYERS.index(target) > LAYERS.index(own):
            wrong = f"{own} may not depend on {target}"
        elif relative or target == own:
            wrong = f"write {spelling(target, own)}"
        if wrong:
            found.append(f"{path}:{line}: imports {module}: {wrong}")
    return found


def sources(layer: str) -> list[Path]:
    return sorted((ROOT / layer).rglob("*.py"))


@pytest.mark.parametrize("layer", LAYERS)
def test_imports(layer: str) -> None:
    found = [
        line
        for path in sources(layer)
        for line in violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize("layer", LAYERS[:-1])
def test_nothing_in_frontend_hides_a_layer(layer: str) -> None:
    hiding = [
        name
        for name in (layer, f"{layer}.py", f"{layer}.pyi")
        if (ROOT / "frontend" / name).exists()
    ]
    assert not hiding, f"frontend/{hiding[0]} would be imported instead of {layer}/"


@pytest.mark.parametrize("path", ["ir/node.py", "ir/ops/unary.py"])
@pytest.mark.parametrize(
    ("line", "legal"),
    [
        ("import numpy as np", True),
        ("from . import dtype", True),
        ("import torch", False),
        ("from torch.nn import functional", False),
        ("import tilewright", False),
        ("from tilewright import Tensor", False),
        ("from tilewright import codegen", False),
        ("import tilewright.runtime.plan", False),
        ("from tilewright.ir import node", False),
        ("from tilewright.ir.node import Node", False),
        ("import ir", False),
        ("from codegen import fusion", False),
        ("from ....x import y", False),
        ("importlib.import_module('torch')", False),
        ("__import__('tilewright.codegen')", False),
        ("importlib.import_module('.' + name)", True),
    ],
)
def test_the_rule_in_ir(path: str, line: str, legal: bool) -> None:
    hidden = f"def f():\n    if TYPE_CHECKING:\n        {line}\n"
    for source in (line, hidden):
        assert (violations(path, source) == []) is legal


@pytest.mark.parametrize(
    ("path", "line", "legal"),
    [
        ("codegen/program.py", "from tilewright.ir.node import Node", True),
        ("codegen/program.py", "from tilewright import ir", True),
        ("codegen/program.py", "from ..ir import node", False),
        ("codegen/triton/emitter.py", "from ..kernel import Kernel", True),
        ("codegen/triton/emitter.py", "from ...ir.node import Node", False),
        ("codegen/program.py", "import tilewright.runtime", False),
        ("runtime/plan.py", "from tilewright.codegen.fusion import fuse", True),
        ("runtime/plan.py", "from tilewright import Tensor", False),
        ("frontend/__init__.py", "from ._tensor import Tensor", True),
        ("frontend/__init__.py", "from . import nn", True),
        ("frontend/__init__.py", "from . import ir", False),
        ("frontend/nn/linear.py", "from .. import ir", False),
        ("frontend/nn/linear.py", "from .._tensor import Tensor", True),
        ("frontend/nn/linear.py", "from tilewright.ir import Node", True),
        ("frontend/nn/linear.py", "import tilewright", False),
        ("frontend/nn/linear.py", "from tilewright._tensor import Tensor", False),
        ("frontend/nn/linear.py", "from torch import Tensor", False),
    ],
)
def test_the_rule_elsewhere(path: str, line: str, legal: bool) -> None:
    assert (violations(path, line) == []) is legal


def test_a_violation_names_file_line_and_cure() -> None:
    assert violations("runtime/plan.py", "import os\nfrom tilewright import nn\n") == [
        "runtime/plan.py:2: imports tilewright.nn: runtime may not depend on frontend"
    ]


def test_import_is_light(run_python) -> None:
    """`import tilewright` loads no compiler, no exporter, no plotting, no terminal toolkit."""
    code = """
        import sys
        import tilewright
        print(*(name for name in sys.argv[1:] if name in sys.modules))
    """
    loaded = run_python(textwrap.dedent(code), *HEAVY).split()
    assert not loaded, f"`import tilewright` loads {', '.join(loaded)}: import inside the function"


@pytest.mark.parametrize("layer", LAYERS)
def test_each_layer_can_be_imported_first(layer: str, run_python) -> None:
    module = "tilewright" if layer == "frontend" else f"tilewright.{layer}"
    run_python(f"import {module}")
