"""The NumPy template of an op, split into single calls whose results can be reused.

`-{0} * 2` becomes negative, then multiply; each is a call of a ufunc that takes `out=`. A template
that can't be split stays one expression.
"""

from __future__ import annotations

import ast
import functools
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.ir.numeric import special
from tilewright.ir.op import Op

_BINARY = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
    ast.BitAnd: "bitwise_and",
    ast.BitOr: "bitwise_or",
    ast.BitXor: "bitwise_xor",
    ast.LShift: "left_shift",
    ast.RShift: "right_shift",
}
_COMPARE = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}


@dataclass(frozen=True)
class Call:
    """One call: `function(*arguments)`. Integer arguments are operands (from 0) or earlier results
    (-1, -2, ...: counted from the first result), strings are literals."""

    function: str
    arguments: tuple[int | str, ...]
    is_ufunc: bool


@functools.cache
def calls(op: Op) -> tuple[Call, ...] | None:
    """The template of `op` as calls, the last of them its value; None if it stays whole."""
    assert isinstance(op.numpy, str), f"{op.name} has no NumPy template"
    tree = ast.parse(op.numpy.format(*(f"x{i}" for i in range(8))), mode="eval").body
    out: list[Call] = []
    try:
        top = _visit(tree, out)
    except _WholeError:
        return None
    return tuple(out) if top == -len(out) and out else None


class _WholeError(Exception):
    pass


def _visit(node: ast.expr, out: list[Call]) -> int | str:
    if isinstance(node, ast.Name) and node.id[0] == "x" and node.id[1:].isdigit():
        return int(node.id[1:])
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float)):
        return repr(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return _emit("negative", [node.operand], out)
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _emit(_BINARY[type(node.op)], [node.left, node.right], out)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in _COMPARE:
        return _emit(_COMPARE[type(node.ops[0])], [node.left, node.comparators[0]], out)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.keywords:
        home = node.func.value
        if isinstance(home, ast.Name) and home.id in ("np", "special"):
            return _emit(node.func.attr, node.args, out, home.id)
    raise _WholeError


def _emit(name: str, nodes: list[ast.expr], out: list[Call], home: str = "np") -> int:
    arguments = tuple(_visit(node, out) for node in nodes)
    known = getattr(np if home == "np" else special, name)
    takes_out = isinstance(known, np.ufunc)
    if home == "special":
        takes_out = "out" in inspect.signature(known).parameters
    out.append(Call(f"{home}.{name}", arguments, takes_out))
    return -len(out)


@functools.cache
def result_dtype(function: str, dtypes: tuple[Any, ...]) -> np.dtype:
    """The dtype that NumPy gives `function` for its arguments: dtypes, or literals as text."""
    namespace = {"np": np, "special": special}
    arguments = [eval(d) if isinstance(d, str) else np.ones(1, dtype=d) for d in dtypes]
    with np.errstate(all="ignore"):
        dtype: np.dtype = np.asarray(eval(function, namespace)(*arguments)).dtype
    return dtype


@functools.cache
def whole_dtype(op: Op, dtypes: tuple[Any, ...], target: Any) -> np.dtype:
    """The dtype of an op's template evaluated whole."""
    assert isinstance(op.numpy, str)
    names = [f"x{i}" for i in range(len(dtypes))]
    scope: dict[str, Any] = {n: np.ones(1, dtype=d) for n, d in zip(names, dtypes)}
    scope |= {"np": np, "special": special, "np_dtype": target}
    with np.errstate(all="ignore"):
        dtype: np.dtype = np.asarray(eval(op.numpy.format(*names), scope)).dtype
    return dtype
