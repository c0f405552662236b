"""Graphs: lists of nodes, and the Python that they are written as."""

from __future__ import annotations

import builtins
import copy
import keyword
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

from .node import Node, Target, map_arg
from .writing import CodeGen, PythonCode, TransformCode

__all__ = ["CodeGen", "Graph", "PythonCode"]


def _snake_case(text: str) -> str:
    parts = re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", text)
    return parts.lower()


class _Names:
    """The names of a graph's nodes, each once."""

    def __init__(self) -> None:
        self.used: set[str] = set()
        self.counts: dict[str, int] = {}

    def new(self, candidate: str) -> str:
        candidate = re.sub(r"[^0-9a-zA-Z_]+", "_", candidate) or "_unnamed"
        if candidate[0].isdigit():
            candidate = f"_{candidate}"
        found = re.fullmatch(r"(.*)_(\d+)", candidate)
        base, number = (found[1], int(found[2])) if found else (candidate, None)
        name = base if number is None else candidate
        number = number or self.counts.get(base, 0)
        while name in self.used or name in _TAKEN:
            number += 1
            name = f"{base}_{number}"
        self.used.add(name)
        self.counts[base] = number
        return name


_TAKEN = {*keyword.kwlist, *dir(builtins), "torch", "self", "device", "inf", "nan", "NoneType"}


class _Nodes:
    """The nodes of a graph in their order."""

    def __init__(self, graph: Graph, backwards: bool = False):
        self.graph, self.backwards = graph, backwards

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __iter__(self) -> Iterator[Node]:
        root = self.graph._root
        at = root._prev if self.backwards else root._next
        while at is not root:
            if not at._erased:
                yield at
            at = at._prev if self.backwards else at._next

    def __reversed__(self) -> _Nodes:
        return _Nodes(self.graph, not self.backwards)


class Graph:
    """A program as a list of calls. Its methods add nodes where `inserting_before` and
    `inserting_after` say, at the end otherwise."""

    owning_module: Any

    def __init__(
        self, owning_module: Any = None, tracer_cls: Any = None, tracer_extras: Any = None
    ):
        self._root = Node(self, "", "root", "", (), {})
        self._names = _Names()
        self._insert: Callable[[Node], None] = self._root.prepend
        self.owning_module = owning_module
        self._tracer_cls, self._tracer_extras = tracer_cls, tracer_extras
        self._codegen = CodeGen()

    @property
    def nodes(self) -> _Nodes:
        return _Nodes(self)

    def find_nodes(self, *, op: str, target: Any = None, sort: bool = True) -> list[Node]:
        """The nodes with this op and, if it is given, this target."""
        return [n for n in self.nodes if n.op == op and (target is None or n.target == target)]

    def output_node(self) -> Node:
        return next(node for node in reversed(self.nodes) if node.op == "output")

    # ---- making ------------------------------------------------------------------------------

    def create_node(
        self,
        op: str,
        target: Target,
        args: tuple[Any, ...] | None = None,
        kwargs: dict[str, Any] | None = None,
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Add a node. name: a wish; a number is added where the name is taken."""
        candidate = self._target_to_str(target) if name is None else name
        made = Node(self, self._names.new(candidate), op, target, args or (), kwargs or {})
        made.type = type_expr
        self._insert(made)
        return made

    def _target_to_str(self, target: Target) -> str:
        if callable(target):
            text = getattr(target, "__name__", type(target).__name__)
        else:
            text = target
            if text.startswith("__") and text.endswith("__"):
                text = text[2:-2]
        return _snake_case(text)

    def placeholder(self, name: str, type_expr: Any = None, default_value: Any = ...) -> Node:
        args = () if default_value is ... else (default_value,)
        return self.create_node("placeholder", name, args, type_expr=type_expr)

    def get_attr(self, qualified_name: str, type_expr: Any = None) -> Node:
        return self.create_node("get_attr", qualified_name, type_expr=type_expr)

    def call_module(
        self, module_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        return self.create_node("call_module", module_name, args, kwargs, type_expr=type_expr)

    def call_method(
        self, method_name: str, args: Any = None, kwargs: Any = None, type_expr: Any = None
    ) -> Node:
        return self.create_node("call_method", method_name, args, kwargs, type_expr=type_expr)

    def call_function(
        self,
        the_function: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        type_expr: Any = None,
        name: str | None = None,
    ) -> Node:
        return self.create_node("call_function", the_function, args, kwargs, name, type_expr)

    def create_size_node(self, tensor_node: Node, dim: int) -> Node:
        """A node for `tensor_node.size(dim)`."""
        return self.call_method("size", (tensor_node, dim))

    def create_stride_node(self, tensor_node: Node, dim: int) -> Node:
        """A node for `tensor_node.stride(dim)`."""
        return self.call_method("stride", (tensor_node, dim))

    def create_storage_offset_node(self, tensor_node: Node) -> Node:
        """A node for `tensor_node.storage_offset()`."""
        return self.call_method("storage_offset", (tensor_node,))

    def output(self, result: Any, type_expr: Any = None) -> Node:
        return self.create_node("output", "output", (result,), type_expr=type_expr)

    def node_copy(self, node: Node, arg_transform: Callable[[Node], Any] = lambda x: x) -> Node:
        """Add a copy of a node of any graph. arg_transform: from its inputs to nodes of this
        graph."""
        args, kwargs = map_arg(node.args, arg_transform), map_arg(node.kwargs, arg_transform)
        made = self.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        made.meta = copy.copy(node.meta)
        return made

    def graph_copy(
        self, g: Graph, val_map: dict[Node, Any], return_output_node: bool = False
    ) -> Any:
        """Add copies of all nodes of another graph but those in `val_map`, which gets them. Returns
        the value of its output."""
        for node in g.nodes:
            if node in val_map:
                continue
            if node.op == "output":
                value = map_arg(node.args[0], val_map.__getitem__)
                return (value, node) if return_output_node else value
            val_map[node] = self.node_copy(node, val_map.__getitem__)
        return None

    # ---- changing ----------------------------------------------------------------------------

    @contextmanager
    def _at(self, insert: Callable[[Node], None]) -> Iterator[None]:
        before, self._insert = self._insert, insert
        try:
            yield
        finally:
            self._insert = before

    def inserting_before(self, n: Node | None = None) -> AbstractContextManager[None]:
        """The block whose new nodes come before a node; without one at the beginning."""
        if n is None:
            return self._at(self._root._next.prepend)
        if n.graph is not self:
            raise AssertionError("Node to insert before is not in graph.")
        return self._at(n.prepend)

    def inserting_after(self, n: Node | None = None) -> AbstractContextManager[None]:
        """The block whose new nodes come behind a node; without one at the end."""
        if n is None:
            return self._at(self._root.prepend)
        if n.graph is not self:
            raise AssertionError("Node to insert after is not in graph.")
        last = n

        def insert(made: Node) -> None:
            nonlocal last
            last.append(made)
            last = made

        return self._at(insert)

    def erase_node(self, to_erase: Node) -> None:
        """Take a node out that nothing uses."""
        if to_erase.users:
            raise RuntimeError(
                f"Tried to erase Node {to_erase} but it still had {len(to_erase.users)} users in "
                f"the graph: {to_erase.users}!"
            )
        if to_erase._erased:
            return
        to_erase._unlink()
        to_erase._erased = True
        to_erase._set((), {})

    def eliminate_dead_code(self, is_impure_node: Callable[[Node], bool] | None = None) -> bool:
        """Erase calls whose results nothing uses. Returns whether there were any."""
        impure = is_impure_node or Node.is_impure
        changed = False
        for node in list(reversed(self.nodes)):
            if not impure(node) and not node.users:
                self.erase_node(node)
                changed = True
        return changed

    def lint(self) -> None:
        """RuntimeError unless each node comes behind its inputs, and its target is there."""
        seen: set[str] = set()
        for node in self.nodes:
            if node.graph is not self:
                raise RuntimeError(f"Node '{node}' does not belong to this Graph!")
            if node.name in seen:
                raise RuntimeError(f"Node redefined name {node.name}!")
            for each in node.all_input_nodes:
                if each.graph is not self:
                    raise RuntimeError(f"Argument '{each}' of Node '{node}' is not of this Graph!")
                if each.name not in seen:
                    raise RuntimeError(
                        f"Argument '{each}' of Node '{node}' was used before it has been defined!"
                    )
            seen.add(node.name)
            if self.owning_module is not None and node.op in ("get_attr", "call_module"):
                self._find(str(node.target), node)

    def _find(self, target: str, node: Node) -> Any:
        found = self.owning_module
        for part in target.split("."):
            if not hasattr(found, part):
                raise RuntimeError(
                    f"Node {node} target {target} references nonexistent attribute {part}"
                )
            found = getattr(found, part)
        return found

    # ---- writing -----------------------------------------------------------------------------

    def set_codegen(self, codegen: CodeGen) -> None:
        self._codegen = codegen

    def python_code(self, root_module: str, **options: Any) -> PythonCode:
        """The source of `forward`. root_module: the name of the module in it, 'self'."""
        return self._codegen.write(self, root_module)

    def on_generate_code(
        self, make_transformer: Callable[[TransformCode | None], TransformCode]
    ) -> AbstractContextManager[Any]:
        """Change the lines of `forward` from now on, or until a `with` block of the result ends.

        make_transformer: given the function that changes them so far, or None, gives the one that
        shall. Such a function takes and gives a list of lines.
        """
        codegen = self._codegen
        before = codegen._body_transformer
        codegen._body_transformer = make_transformer(before)
        ending = ExitStack()
        ending.callback(setattr, codegen, "_body_transformer", before)
        return ending

    def process_inputs(self, *args: Any) -> Any:
        """The inputs of the graph for the arguments of `forward`."""
        return self._codegen.process_inputs(*args)

    def process_outputs(self, out: Any) -> Any:
        """The result of `forward` for the output of the graph."""
        return self._codegen.process_outputs(out)

    def print_tabular(self) -> None:
        """Print a table of the nodes."""
        rows: list[tuple[str, ...]] = [("opcode", "name", "target", "args", "kwargs")]
        rows += [
            tuple(map(str, (n.op, n.name, n.target, n.args, dict(n.kwargs)))) for n in self.nodes
        ]
        widths = [max(len(row[i]) for row in rows) for i in range(5)]
        rows.insert(1, tuple("-" * width for width in widths))
        for row in rows:
            print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())

    def __str__(self) -> str:
        return "graph():" + "".join(f"\n    {node.format_node()}" for node in self.nodes)

    def __deepcopy__(self, memo: dict[int, Any]) -> Graph:
        made = Graph(tracer_cls=self._tracer_cls, tracer_extras=self._tracer_extras)
        made._codegen = self._codegen
        memo[id(self)] = made
        values: dict[Node, Any] = {}
        found = made.graph_copy(self, values, return_output_node=True)
        if found is not None:
            value, output = found
            last = made.output(value, output.type)
            last.meta = copy.copy(output.meta)
        return made
