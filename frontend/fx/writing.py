"""A graph as the source of a Python function."""

from __future__ import annotations

import enum
import inspect
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import DType

from ..devices import device
from .node import Node
from .targets import qualified_name

if TYPE_CHECKING:
    from .graph import Graph

_BINARY = {
    operator.add: "+", operator.sub: "-", operator.mul: "*", operator.truediv: "/",
    operator.floordiv: "//", operator.mod: "%", operator.pow: "**", operator.matmul: "@",
    operator.lshift: "<<", operator.rshift: ">>", operator.and_: "&", operator.or_: "|",
    operator.xor: "^", operator.eq: "==", operator.ne: "!=", operator.lt: "<", operator.gt: ">",
    operator.le: "<=", operator.ge: ">=",
}  # fmt: skip
_UNARY = {operator.neg: "-", operator.pos: "+", operator.invert: "~"}
_IN_PLACE = {
    operator.iadd: "+=", operator.isub: "-=", operator.imul: "*=", operator.itruediv: "/=",
    operator.ifloordiv: "//=", operator.imod: "%=", operator.ipow: "**=", operator.imatmul: "@=",
    operator.iand: "&=", operator.ior: "|=", operator.ixor: "^=", operator.ilshift: "<<=",
    operator.irshift: ">>=",
}  # fmt: skip


@dataclass
class PythonCode:
    """Source, and the objects that its names mean."""

    src: str
    globals: dict[str, Any] = field(default_factory=dict)


TransformCode = Callable[[list[str]], list[str]]
"""Changes the lines of a function's body."""


class CodeGen:
    """Writes graphs as Python. A subclass may change what surrounds the body."""

    _body_transformer: TransformCode | None = None

    def __init__(self) -> None:
        self._function = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The head of the function."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        return f"def {self._function}({', '.join(free_vars)}){maybe_return_annotation}:"

    def generate_output(self, output_args: Any, *, descs: Any = None) -> str:
        return f"return {self._written(output_args)}"

    def additional_globals(self) -> list[tuple[str, Any]]:
        """Names that the code uses, with their values."""
        return []

    def process_inputs(self, *args: Any) -> Any:
        return args

    def process_outputs(self, outputs: Any) -> Any:
        return outputs

    def write(self, graph: Graph, root: str) -> PythonCode:
        self._globals: dict[str, Any] = {}
        last = _last_uses(graph)
        inputs: list[str] = []
        lines: list[str] = []
        returned = ""
        self._root = root
        for node in graph.nodes:
            line = self._line(node, inputs)
            if node.op == "output":
                if node.type is not None:
                    returned = f" -> {self._annotation(node.type)}"
                lines.append(line)
                continue
            spent = " = ".join([n.name for n in last.get(node, ())])
            free = f";  {spent} = None" if spent else ""
            if line or free:
                lines.append(line + free if line else free[3:])
        if not lines:
            lines = ["pass"]
        if self._body_transformer is not None:
            changed = self._body_transformer([f"{line}\n" for line in lines])
            lines = "".join(changed).splitlines()
        for name, value in self.additional_globals():
            self._globals[name] = value
        head = self.gen_fn_def(inputs, returned)
        body = "\n".join(f"    {line}" for line in lines)
        return PythonCode(f"\n\n\n{head}\n{body}\n    ", self._globals)

    def _line(self, node: Node, inputs: list[str]) -> str:
        typed = "" if node.type is None else f" : {self._annotation(node.type)}"
        if node.op == "placeholder":
            name = str(node.target)
            default = f" = {self._written(node.args[0])}" if node.args else ""
            inputs.append(f"{name}{typed}{default}")
            bare = name.replace("*", "")
            return "" if bare == node.name else f"{node.name} = {bare}"
        if node.op == "output":
            return self.generate_output(node.args[0])
        return f"{node.name}{typed} = {self._call(node)}"

    def _call(self, node: Node) -> str:
        if node.op == "get_attr":
            return _path(self._root, str(node.target))
        if node.op == "call_module":
            return f"{_path(self._root, str(node.target))}({self._arguments(node.args, node)})"
        if node.op == "call_method":
            owner = self._written(node.args[0])
            return f"{owner}.{node.target}({self._arguments(node.args[1:], node)})"
        target: Any = node.target
        parts = [self._written(each) for each in node.args]
        if not node.kwargs:
            if target in _BINARY and len(parts) == 2:
                return f"{parts[0]} {_BINARY[target]} {parts[1]}"
            if target in _UNARY and len(parts) == 1:
                return f"{_UNARY[target]}{parts[0]}"
            if target in _IN_PLACE and len(parts) == 2:
                return f"{parts[0]};  {node.name} {_IN_PLACE[target]} {parts[1]}"
            if target is operator.getitem and len(parts) == 2:
                return f"{parts[0]}[{parts[1]}]"
            if target is getattr and len(parts) == 2 and str(node.args[1]).isidentifier():
                return f"{parts[0]}.{node.args[1]}"
        return f"{self._named(target)}({self._arguments(node.args, node)})"

    def _arguments(self, args: Any, node: Node) -> str:
        parts = [self._written(each) for each in args]
        parts += [f"{name} = {self._written(value)}" for name, value in node.kwargs.items()]
        return ", ".join(parts)

    def _named(self, target: Callable[..., Any]) -> str:
        """The name of a function in the source."""
        path = qualified_name(target)
        if path.startswith("torch.") and _found(path) is target:
            self._globals["torch"] = _torch()
            return path
        if "." not in path:
            return self._global(path, target)
        return self._global(path.replace(".", "_"), target)

    def _global(self, name: str, value: Any) -> str:
        name = re.sub(r"\W", "_", name)
        base, count = name, 0
        while self._globals.get(name, value) is not value:
            count += 1
            name = f"{base}_{count}"
        self._globals[name] = value
        return name

    def _annotation(self, kind: Any) -> str:
        if isinstance(kind, str):
            return kind
        if isinstance(kind, type) and not getattr(kind, "__args__", None):
            if kind.__module__ == "builtins":
                return kind.__name__
            return self._global(qualified_name(kind).replace(".", "_"), kind)
        return self._global(inspect.formatannotation(kind), kind)

    def _written(self, value: Any) -> str:
        """An argument as source."""
        if isinstance(value, Node):
            return value.name
        if isinstance(value, tuple):
            parts = [self._written(each) for each in value]
            if hasattr(value, "_fields"):
                return f"{self._named(type(value))}({', '.join(parts)})"
            return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        if isinstance(value, list):
            return f"[{', '.join(map(self._written, value))}]"
        if isinstance(value, dict):
            return (
                "{" + ", ".join(f"{self._written(k)}: {self._written(v)}" for k, v in value.items())
            ) + "}"
        if isinstance(value, slice):
            parts = [self._written(each) for each in (value.start, value.stop, value.step)]
            return f"slice({', '.join(parts)})"
        if isinstance(value, DType):
            self._globals["torch"] = _torch()
            return str(value)
        if isinstance(value, device):
            self._globals["device"] = device
            return repr(value)
        if isinstance(value, enum.Enum):
            return f"{self._named(type(value))}.{value.name}"
        if isinstance(value, float) and value != value:
            self._globals["nan"] = value
            return "nan"
        if isinstance(value, float) and value in (float("inf"), -float("inf")):
            self._globals["inf"] = float("inf")
            return "inf" if value > 0 else "-inf"
        if isinstance(value, type) or inspect.isroutine(value):
            return self._named(value)
        return repr(value)


def _last_uses(graph: Graph) -> dict[Node, list[Node]]:
    """For each node the values that nothing uses behind it."""
    found: dict[Node, list[Node]] = {}
    seen: set[Node] = set()
    for node in reversed(graph.nodes):
        if node.op == "output":
            seen |= set(node.all_input_nodes)
            continue
        inputs = [n for n in node.all_input_nodes if n not in seen]
        if not node.users and node.op != "placeholder":
            inputs.append(node)
        if inputs:
            found[node] = inputs
            seen |= set(inputs)
    return found


def _path(root: str, target: str) -> str:
    """An attribute of a module, with getattr where its name is no identifier."""
    made = root
    for part in target.split("."):
        made = f"{made}.{part}" if part.isidentifier() else f'getattr({made}, "{part}")'
    return made


def _torch() -> Any:
    from .targets import namespaces

    return next(module for path, module in namespaces() if path == "torch")


def _found(path: str) -> Any:
    value = _torch()
    for part in path.split(".")[1:]:
        value = getattr(value, part, None)
    return value
