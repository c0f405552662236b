"""Dependencies point one way, ir <- codegen <- runtime <- frontend, and torch is in none of them.

Every import statement is read, also inside functions and under TYPE_CHECKING. Inside a layer
imports are relative; across layers they are absolute, `tilewright.X`.

Inside a layer too imports have an order: no modules import each other in a circle, and folders have
floors (`ROOMS`). There imports for annotations alone, under TYPE_CHECKING, are free.
"""

from __future__ import annotations

import ast
import functools
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import networkx as nx
import pytest
from paths import ROOT

from tilewright.paths import PATHS

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


class Import(NamedTuple):
    """Of a module, by its absolute name. for_types: under TYPE_CHECKING, for annotations alone."""

    line: int
    relative: bool
    module: str
    for_types: bool


@functools.cache
def imported_modules(path: str, source: str) -> list[Import]:
    """Each import of a file; a `from` gives one for each name."""
    package = package_of(path)
    found = []
    for node, for_types in _parts(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [Import(node.lineno, False, alias.name, for_types) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - (node.level - 1)] if node.level else []
            if node.level and not base:
                found.append(Import(node.lineno, True, "<above tilewright>", for_types))
                continue
            base = base + (node.module.split(".") if node.module else [])
            for alias in node.names:
                module = ".".join([*base, alias.name])
                found.append(Import(node.lineno, node.level > 0, module, for_types))
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            name = getattr(node.func, "attr", getattr(node.func, "id", None))
            argument = node.args[0].value
            dynamic = name in ("import_module", "__import__") and isinstance(argument, str)
            if dynamic and not argument.startswith("."):
                found.append(Import(node.lineno, False, argument, for_types))
    return sorted(found)


def _parts(tree: ast.AST) -> Iterator[tuple[ast.AST, bool]]:
    """The parts of a program, and whether they are under `if TYPE_CHECKING`."""
    stack = [(tree, False)]
    while stack:
        node, for_types = stack.pop()
        yield node, for_types
        if isinstance(node, ast.If) and _is_for_checkers(node.test):
            stack += [(each, True) for each in node.body]
            stack += [(each, for_types) for each in node.orelse]
        else:
            stack += [(each, for_types) for each in ast.iter_child_nodes(node)]


def _is_for_checkers(test: ast.expr) -> bool:
    names = (getattr(each, "id", getattr(each, "attr", None)) for each in ast.walk(test))
    return "TYPE_CHECKING" in names


def spelling(target: str, own: str) -> str:
    """How a file of layer `own` writes the import of layer `target`."""
    if target == own:
        return "it relative: inside a layer imports are"
    return "it absolute: tilewright" + ("" if target == "frontend" else f".{target}")


def violations(path: str, source: str) -> list[str]:
    """What the imports of one file break, as lines `path:line: what`."""
    own = Path(path).parts[0]
    found = []
    for line, relative, module, _ in imported_modules(path, source):
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


# ---- inside a layer ---------------------------------------------------------------------------

ROOMS = {
    "ir": """
        __init__ dtype enumeration failure interruption location
        numeric shape
        node
        op
        ops rewrite
        recipe reference
        passes
        loop
        ctc recurrence
        mlir
    """,
    "codegen": """
        __init__ chip instructions ops
        target
        kernel
        lower numpy pairs schedule
        legalize llvm triton
        fusion
        program
    """,
    "runtime": """
        __init__ arena cubin debug device driver files forks placement
        cache hip host loops segment
        interpret meta native results run segments
        engine offline
        cpu
        cuda
        devices
        plan
        baseline tuner
        shapes
        tiers
    """,
    "frontend": """
        devices layouts paths recording return_types torch_version
        overriding
        functions futures monitor numa settings types version
        __config__ _utils autograd backends exchange inspection linalg random replay testing
        _tensor _tensor_str aot library mps mtia profiler storage xpu
        distributed
        _custom_ops amp compound nn overrides
        __future__ multiprocessing nested sparse
        _C compiler cpu fft masked optim publish serialization special tuning
        __init__ _dynamo cuda dispatching hub package signal
        ops
        classes utils
        _subclasses accelerator audio distributions func fx quasirandom sharding vision
        _higher_order_ops ao graphing onnx
        jit
        export
        as_torch
        cli
        __main__
    """,
}
"""The folders of a layer and the modules at its root, lowest first. A room imports what is on the
lines above its own, and nothing beside it."""

VJPS = {
    f"tilewright.ir.ops.{name}" for name in "binary composite movement reduce ternary unary".split()
}
"""They are one calculus: the gradient of a sum is an expansion, that of an expansion a sum."""

CIRCLES = (VJPS,)
"""Sets of modules that may import each other. No other is to be added."""


def module_of(path: str) -> str:
    """The name under which a file is imported."""
    parts = [*package_of(path), Path(path).stem]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def import_graph(files: Iterable[tuple[str, str]]) -> nx.DiGraph:
    """Which module imports which, of files (path, source). Nodes have the layer and the room;
    edges the places (path:line) of the imports."""
    graph = nx.DiGraph()
    sources = dict(files)
    for path in sources:
        layer, *rest = Path(path).parts
        graph.add_node(module_of(path), layer=layer, room=rest[0].removesuffix(".py"))
    for path, source in sources.items():
        own = module_of(path)
        found = imported_modules(path, source)
        for line, module in ((each.line, each.module) for each in found if not each.for_types):
            while module and module not in graph:  # the name of something in a module
                module = module.rpartition(".")[0]
            if module and module != own:
                if not graph.has_edge(own, module):
                    graph.add_edge(own, module, places=[])
                graph.edges[own, module]["places"].append(f"{path}:{line}")
    return graph


def circles(graph: nx.DiGraph) -> list[set[str]]:
    """The modules that import each other, directly or by way of others, the most first."""
    found = (set(c) for c in nx.strongly_connected_components(graph) if len(c) > 1)
    return sorted(found, key=lambda c: (-len(c), min(c)))


def circle_violations(graph: nx.DiGraph, allowed: Iterable[set[str]]) -> list[str]:
    """The imports of the shortest circle in each set of modules that isn't allowed."""
    found = []
    for circle in circles(graph):
        if any(circle <= each for each in allowed):
            continue
        within = graph.subgraph(circle)
        ways = ((nx.shortest_path(within, b, a), (a, b)) for a, b in within.edges)
        way, (start, _) = min(ways, key=lambda w: (len(w[0]), w[1]))
        found += [f"{len(circle)} modules import each other; {len(way)} of them directly so:"]
        for a, b in zip([start, *way], way):
            found.append(f"  {graph.edges[a, b]['places'][0]}: {a} imports {b}")
    return found


def floors(table: str) -> dict[str, int]:
    lines = table.strip().splitlines()
    return {room: i for i, line in enumerate(lines) for room in line.split()}


def order_violations(graph: nx.DiGraph, rooms: dict[str, str]) -> list[str]:
    """The imports inside a layer that go up, or to another room on the same floor."""
    found = []
    for a, b, places in graph.edges(data="places"):
        layer, room = graph.nodes[a]["layer"], graph.nodes[a]["room"]
        other = graph.nodes[b]["room"]
        if layer != graph.nodes[b]["layer"] or room == other:
            continue
        floor = floors(rooms[layer])
        if floor.get(other, -1) >= floor.get(room, len(floor)):
            found.append(
                f"{places[0]}: {a} imports {b}: {layer}/{other} is not below {layer}/{room}"
            )
    return found


@pytest.fixture(scope="module")
def imports() -> nx.DiGraph:
    return import_graph(
        (path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
        for layer in LAYERS
        for path in sources(layer)
    )


def test_the_import_graph(imports: nx.DiGraph) -> None:
    """Its numbers, for people: pytest -s."""
    found = circles(imports)
    print(f"\n{imports.number_of_nodes()} modules, {imports.number_of_edges()} arrows")
    for layer in LAYERS:
        inside = imports.subgraph(n for n, of in imports.nodes(data="layer") if of == layer)
        between = {(imports.nodes[a]["room"], imports.nodes[b]["room"]) for a, b in inside.edges}
        between = {(a, b) for a, b in between if a != b}
        print(
            f"{layer}: {len(inside)} modules in {len(floors(ROOMS[layer]))} rooms on "
            f"{len(set(floors(ROOMS[layer]).values()))} floors, {inside.number_of_edges()} arrows, "
            f"{len(between)} between rooms, {len(circles(inside))} circles"
        )
    print(*(f"circle of {len(c)}: {' '.join(sorted(c))}" for c in found), sep="\n")


def test_the_import_graph_has_what_python_loads(imports: nx.DiGraph, run_python) -> None:
    loaded = set(run_python("import sys, tilewright.nn; print(*sys.modules)").split())
    whole = imports.copy()
    for module in imports:  # a module is loaded with the packages that it is in
        if "." in module:
            whole.add_edge(module, module.rpartition(".")[0])
    own = {name for name in loaded if name.split(".")[0] == "tilewright"}
    own -= {f"tilewright.{path}" for path in PATHS}  # they have no files
    assert len(own) > 50
    assert own <= {"tilewright.nn"} | nx.descendants(whole, "tilewright.nn")


def test_no_modules_import_each_other(imports: nx.DiGraph) -> None:
    found = circle_violations(imports, CIRCLES)
    assert not found, "\n" + "\n".join(found)


def test_rooms_have_an_order(imports: nx.DiGraph) -> None:
    found = order_violations(imports, ROOMS)
    assert not found, "\n" + "\n".join(found)


def test_the_tables_are_those_of_the_tree(imports: nx.DiGraph) -> None:
    """A circle that is cut is cut for good, and each room has its floor."""
    for allowed in CIRCLES:
        assert allowed in circles(imports), f"these are no circle any more: {sorted(allowed)}"
    for layer in LAYERS:
        rooms = {d["room"] for _, d in imports.nodes(data=True) if d["layer"] == layer}
        gone, missing = set(floors(ROOMS[layer])) - rooms, rooms - set(floors(ROOMS[layer]))
        assert not gone, f"ROOMS has what {layer}/ has not: {', '.join(sorted(gone))}"
        assert not missing, f"ROOMS has no floor in {layer}/ for {', '.join(sorted(missing))}"


def test_what_breaks_the_order_is_named() -> None:
    files = {
        "ir/a.py": "if TYPE_CHECKING:\n    from .ops.x import y\n",
        "ir/ops/__init__.py": "",
        "ir/ops/x.py": "import os\n\ndef f():\n    from .z import g\n",
        "ir/ops/z.py": "from ..a import h\nfrom . import w\n",
        "ir/ops/w.py": "",
    }
    rooms = {"ir": "a\nops"}
    graph = import_graph(files.items())
    assert set(graph.edges) == {
        ("tilewright.ir.ops.x", "tilewright.ir.ops.z"),
        ("tilewright.ir.ops.z", "tilewright.ir.a"),
        ("tilewright.ir.ops.z", "tilewright.ir.ops.w"),
    }
    assert not order_violations(graph, rooms) and not circle_violations(graph, ())
    files["ir/a.py"] = "\nfrom .ops import x\n"
    graph = import_graph(files.items())
    assert order_violations(graph, rooms) == [
        "ir/a.py:2: tilewright.ir.a imports tilewright.ir.ops.x: ir/ops is not below ir/a"
    ]
    assert circle_violations(graph, ()) == [
        "3 modules import each other; 3 of them directly so:",
        "  ir/a.py:2: tilewright.ir.a imports tilewright.ir.ops.x",
        "  ir/ops/x.py:4: tilewright.ir.ops.x imports tilewright.ir.ops.z",
        "  ir/ops/z.py:1: tilewright.ir.ops.z imports tilewright.ir.a",
    ]
    assert not circle_violations(graph, [set(graph)])


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
