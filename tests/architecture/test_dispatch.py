"""What compiles goes by an op's record or its fields, never by its name.

Names are for readers: they are printed, written as MLIR text, hashed and kept in golden files. So
an op may be renamed, and one that a newcomer adds fills the fields that passes and emitters ask.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from paths import ROOT

from tilewright.codegen.kernel import SCANS, UPDATES
from tilewright.codegen.ops import flat, part, unflat
from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.node import Node
from tilewright.ir.op import REGISTRY, Kind, Op
from tilewright.ir.reference import evaluate
from tilewright.ir.shape import Size

LAYERS = ("ir", "codegen", "runtime")
OPS = frozenset(REGISTRY)
MODES = {"set", *UPDATES}  # of updates, some of which are called as ops are


def is_name(expression: ast.AST) -> bool:
    """Whether this is `op.name`, or the name of an attribute `op`."""
    if not isinstance(expression, ast.Attribute) or expression.attr != "name":
        return False
    of = expression.value
    return getattr(of, "id", getattr(of, "attr", None)) == "op"


def aliases(function: ast.AST) -> set[str]:
    """Variables that hold the name of an op."""
    found = set()
    for node in ast.walk(function):
        if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            pairs = [(target, node.value) for target in targets]
            for target, value in pairs:
                if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
                    pairs += zip(target.elts, value.elts)
                elif isinstance(target, ast.Name) and value is not None and is_name(value):
                    found.add(target.id)
    return found


def asked(node: ast.AST, local: set[str]) -> Iterator[tuple[ast.expr, str]]:
    """Expressions on which the program's way depends here, and how; not those that are printed."""
    if isinstance(node, ast.Compare):
        for each in (node.left, *node.comparators):
            yield each, "is compared"
    elif isinstance(node, ast.Subscript):
        yield node.slice, "is a key"
        yield node.value, "is taken apart"
    elif isinstance(node, ast.Match):
        yield node.subject, "is matched"
    elif isinstance(node, ast.Call):
        function = node.func
        if isinstance(function, ast.Attribute):
            yield function.value, f"is asked for {function.attr}"
        called = getattr(function, "attr", getattr(function, "id", ""))
        if called in local or called in ("get", "pop", "setdefault", "getattr"):
            for each in (*node.args, *(k.value for k in node.keywords)):
                yield each, f"is given to {called}"


def tables(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict) and node.keys:
            keys = {k.value if isinstance(k, ast.Constant) else None for k in node.keys}
            if keys <= OPS and not keys <= MODES:
                yield node.lineno, "a table by names of ops: key it by their records"
        key: ast.expr | None = None
        if isinstance(node, ast.Subscript):
            of, key = node.value, node.slice
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            of, key = node.func.value, node.args[0]
        if isinstance(key, ast.Constant) and getattr(of, "id", "") == "REGISTRY":
            yield node.lineno, f"looks up {key.value!r}: import its record"


def violations(path: str, source: str) -> list[str]:
    """Where a file goes by names of ops, as lines `path:line: what`."""
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.Lambda))]
    local = {f.name for f in functions if isinstance(f, ast.FunctionDef)}
    found = set(tables(tree))
    for scope in (tree, *functions):
        names = aliases(scope) if scope is not tree else set()
        # What has no name of its own here was read with the whole file.
        for node in ast.walk(scope) if names or scope is tree else ():
            for each, how in asked(node, local):
                if is_name(each) or (isinstance(each, ast.Name) and each.id in names):
                    found.add((each.lineno, f"the name of an op {how}"))
    return [f"{path}:{line}: {what}" for line, what in sorted(found)]


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_goes_by_names(layer: str) -> None:
    found = [
        line
        for path in sorted((ROOT / layer).rglob("*.py"))
        for line in violations(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    "line",
    [
        'node.op.name == "sum"',
        'op.name in ("add", "sub")',
        'x if "sum" != self.node.op.name else y',
        "RULES[node.op.name](node)",
        "RULES.get(value.op.name)",
        'value.op.name.startswith("arg")',
        "name = node.op.name\n    return name in TABLE",
        "name, kind = node.op.name, node.op.kind\n    return name == kind",
        "f(node.op.name, 1)",
        'match node.op.name:\n        case "sum":\n            pass',
        'return {"sum": 0, "prod": 1, "all": True}',
        'REGISTRY["cast"]',
        'REGISTRY.get("cast")',
    ],
)
def test_what_is_found(line: str) -> None:
    assert violations("codegen/x.py", f"def f(node):\n    {line}\n")


@pytest.mark.parametrize(
    "line",
    [
        "node.op is ops.sum_op",
        "node.op in (ops.add, ops.sub)",
        'raise TypeError(f"{node.op.name}: no kernel")',
        "scope.assign(value.op.name, text)",
        "notes.append((node.op.name, *node.loc))",
        "REGISTRY.get(name)",
        'return {"add": 0, "mul": 1}',
        'return {ops.sum_op: 0, "name": 1}',
        'operation.name == "func.return"',
    ],
)
def test_what_is_not(line: str) -> None:
    assert not violations("codegen/x.py", f"def f(node):\n    {line}\n")


MOVED: dict[Op, Callable[[Node], Node]] = {
    ops.reshape_op: lambda x: ops.reshape(x, (4, 3)),
    ops.permute_op: lambda x: ops.permute(x, (1, 0)),
    ops.flip_op: lambda x: ops.flip(x, (1,)),
    ops.expand_op: lambda x: ops.expand(x, (2, 3, 4)),
    ops.slice_op: lambda x: ops.slice_axis(x, 1, 1, 3),
    ops.windows_op: lambda x: ops.windows(x, (1,), (2,), (3,), (1,)),
    ops.pad_op: lambda x: ops.pad(x, (0, 1), (0, 2)),
    ops.cat_op: lambda x: ops.cat([x, x], 0),
}


_OF_PAIRS = {part, flat, unflat}
"""Movements of the parts of complex numbers, which only the compiler makes."""


def test_movements_say_what_they_keep() -> None:
    recorded = {op for op in REGISTRY.values() if op.kind is Kind.MOVEMENT} - _OF_PAIRS
    assert MOVED.keys() == recorded
    leaf, x = ops.leaf(0, Size((3, 4)), int64), np.arange(12).reshape(3, 4)
    for op, move in MOVED.items():
        node = move(leaf)
        assert node.op is op
        found = evaluate(node, [x if o is leaf else np.int64(99) for o in node.operands])
        assert not op.whole or set(x.flat) <= set(found.flat), op
        assert op.bijective is (sorted(x.flat) == sorted(found.flat)), op


def test_folds_say_which() -> None:
    for op in REGISTRY.values():
        if op.kind is Kind.REDUCE:
            assert op.fold is not None, op
        elif op.kind is Kind.SCAN:
            assert op.fold is None or op.fold in SCANS, op


PROGRAM = """
    import sys
    import tilewright as tw
    from tilewright.ir.op import REGISTRY

    if sys.argv[1] == "renamed":
        for number, op in enumerate(REGISTRY.values()):
            object.__setattr__(op, "name", f"z{number * 7919 % 1000}")
    F = tw.nn.functional
    x = (tw.arange(24.0).reshape(4, 6) / 7).sin().requires_grad_()
    w = (tw.arange(18.0).reshape(6, 3) / 5).cos().requires_grad_()
    image = (tw.arange(2 * 3 * 8 * 8.0).reshape(2, 3, 8, 8) / 11).sin().requires_grad_()
    kernel = (tw.arange(4 * 3 * 3 * 3.0).reshape(4, 3, 3, 3) / 13).cos().requires_grad_()
    at = tw.tensor([2, 0, 1, 2])
    y = F.gelu(F.layer_norm(x, (6,))) @ w
    c = F.max_pool2d(F.conv2d(image, kernel, stride=2, padding=1).relu(), 2)
    values = [
        F.cross_entropy(y, at),
        c.logsumexp(1).sum(),
        (x.cumsum(1).flip(0).roll(1, 1) * x.softmax(0)).prod(1).sum(),
        x.amax(1).sum() + x.max() - x.var() + x.logcumsumexp(0).mean(),
        y.index_select(1, at[:2]).sum() + y.index_add(0, at, y.t().new_ones(4, 3)).pow(2).sum(),
        F.pad(x, (1, 2), value=0.5).unfold(1, 3, 2).sum() + tw.cat([x, x[1:3] - -x[:2]]).mean(),
        F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]).sum(),
    ]
    sum(values).backward()
    ints = tw.arange(12) % 5
    rest = [
        x.argmax(1), x.sort(1, descending=True).indices, x.cummax(1).values, (x > 0).any(0),
        (x > -2).all(), ints.remainder(3).cumprod(0), ints.sort().values, ints[ints > 2],
        (ints // 2) ** 2, ints.bincount(), tw.where(x > 0, x.floor(), x.ceil()), -(-x) * 1,
        tw.special.zeta(x.detach() + 3, x.detach() + 2) if hasattr(tw, "special") else x,
        x.half() * 2, x.double().atan2(x.double() + 2), tw.zeros(5).index_put((at,), y[:, 0]),
    ]
    for value in (*values, *(t.grad for t in (x, w, image, kernel)), *rest):
        print(value.tolist())
"""


@pytest.mark.parametrize("engine", ["auto", pytest.param("numpy", marks=pytest.mark.slow)])
def test_names_change_no_value(engine: str, run_python) -> None:
    """Programs compute the same where every op has a name that nobody knows."""
    code, env = textwrap.dedent(PROGRAM), {"TW_CPU": engine}
    as_named, renamed = (run_python(code, which, env=env) for which in ("named", "renamed"))
    assert as_named == renamed
