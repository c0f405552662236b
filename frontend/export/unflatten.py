"""Exported programs as trees of modules, as the model was one.

Each call of a module becomes a call of a module with a graph of its own. Its inputs are the values
from outside that its nodes use, and its outputs those that others use, unless the program was
exported with `preserve_module_call_signature`: such a module takes and gives what the original one
did, so another module may be put in its place.
"""

from __future__ import annotations

import abc
import operator
from contextlib import nullcontext
from typing import Any

from tilewright.ir.location import at_user_line

from ..fx import _pytree as spread
from ..fx.graph import Graph
from ..fx.interpreter import Interpreter
from ..fx.node import Node, map_arg
from ..fx.pickling import rows_of
from ..nn import Module, Parameter
from ..recording import Handle
from ..utils import _pytree as pytree
from .exported_program import ExportedProgram, ModuleCallSignature, register
from .graph_signature import ConstantArgument, InputKind

__all__ = [
    "FlatArgsAdapter",
    "InterpreterModule",
    "InterpreterModuleDispatcher",
    "UnflattenedModule",
    "unflatten",
]


class FlatArgsAdapter(abc.ABC):
    """Changes arguments of another form to those with which a program was exported."""

    @abc.abstractmethod
    def adapt(
        self,
        target_spec: pytree.TreeSpec,
        input_spec: pytree.TreeSpec,
        input_args: list[Any],
        metadata: dict[str, Any] | None = None,
        obj: Any = None,
    ) -> list[Any]:
        """The leaves for `target_spec`, of the leaves of arguments of the form `input_spec`."""

    def get_flat_arg_paths(self) -> list[str]:
        """The paths of the arguments in the model that calls, if they differ from those there."""
        return []


class _Written(Module):
    """A module whose forward is a graph, run node by node."""

    graph: Graph

    def print_readable(
        self, print_output: bool = True, include_stride: bool = False, include_device: bool = False,
        colored: bool = False,
    ) -> str:  # fmt: skip
        """The source of the class, printed too."""
        body = self.graph.python_code("self").src.strip().replace("\n", "\n    ")
        text = f"class {type(self).__name__}(torch.nn.Module):\n    {body}\n"
        for name, child in self.named_children():
            if isinstance(child, _Written):
                inner = child.print_readable(print_output=False).replace("\n", "\n    ")
                text += f"\n    # {name}\n    {inner.rstrip()}\n"
        if print_output:
            print(text)
        return text

    def _run(self, *flat: Any) -> Any:
        return Interpreter(self, graph=self.graph).run(*flat)


class InterpreterModule(_Written):
    """A part of a program. ty: the class of the module that it was, as text."""

    def __init__(self, graph: Graph, ty: str | None = None):
        super().__init__()
        self.graph = graph
        self._ty = ty
        graph.owning_module = self

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        names = self.arg_names
        if len(args) > len(names) or kwargs.keys() - set(names[len(args) :]):
            raise TypeError(
                f"expected the arguments {', '.join(names)}, got {len(args)} by place and "
                f"{', '.join(kwargs) or 'none'} by name{at_user_line()}"
            )
        try:
            return self._run(*args, *(kwargs[name] for name in names[len(args) :]))
        except KeyError as error:
            raise TypeError(f"missing the argument {error}{at_user_line()}") from None

    @property
    def arg_names(self) -> list[str]:
        return [str(n.target) for n in self.graph.nodes if n.op == "placeholder"]

    def finalize(self) -> None:
        """RuntimeError unless the graph is whole. Call it after a change of the graph."""
        self.graph.lint()


class InterpreterModuleDispatcher(Module):
    """Several graphs of one module, for its calls in turn. attrs: the names that all share."""

    def __init__(self, attrs: set[str], call_modules: list[InterpreterModule]):
        super().__init__()
        if not call_modules:
            raise AssertionError("expected at least one module of a call")
        for attr in attrs:
            setattr(self, attr, getattr(call_modules[0], attr))
        self._call_modules = call_modules
        self._num_calls = 0

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        chosen = self._call_modules[self._num_calls]
        self._num_calls = (self._num_calls + 1) % len(self._call_modules)
        return chosen(*args, **kwargs)

    def call_modules(self) -> list[InterpreterModule]:
        return self._call_modules

    def print_readable(self, print_output: bool = True, *args: Any, **options: Any) -> str:
        texts = [m.print_readable(print_output, *args, **options) for m in self._call_modules]
        return "\n".join(texts)


class UnflattenedModule(_Written):
    """A program as a tree of modules with weights of its own."""

    def __init__(
        self, export_module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
    ):
        super().__init__()
        self.graph_signature = export_module.graph_signature
        self.module_call_graph = export_module.module_call_graph
        self.flat_args_adapter = flat_args_adapter
        self.range_constraints = export_module.range_constraints
        self.equality_constraints: list[Any] = []
        self.meta: dict[str, Any] = {"unflattened_module": self}
        self.adapted = False
        self._inputs, self._outputs = export_module._inputs, export_module._outputs
        _copy_tensors(self, export_module)
        self.graph = _Parts(self, export_module).graph
        self.graph.owning_module = self
        self.input_placeholders = [n for n in self.graph.nodes if n.op == "placeholder"]

    def process_forward_inputs(self, *args: Any, **kwargs: Any) -> list[Any]:
        """The leaves of the arguments, after the adapter if there is one and they need it."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        if spec == self._inputs.spec:
            return leaves
        if self.flat_args_adapter is None:
            raise TypeError(
                "There is no flat args adapter specified. Are you sure you are calling this with "
                f"the right arguments? Expected {self._inputs.spec}, got {spec}{at_user_line()}"
            )
        self.adapted = True
        return self.flat_args_adapter.adapt(
            target_spec=self._inputs.spec,
            input_spec=spec,
            input_args=leaves,
            metadata=self.meta,
            obj=self,
        )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        leaves = self.process_forward_inputs(*args, **kwargs)
        try:
            self._inputs.check(leaves)
        except AssertionError as error:
            raise RuntimeError(str(error)) from None
        return self._outputs(self._run(*leaves))

    def finalize(self) -> None:
        """RuntimeError unless the graphs are whole. Call it after a change of one."""
        self.graph.lint()
        for part in self.modules():
            if isinstance(part, InterpreterModule):
                part.finalize()


def unflatten(
    module: ExportedProgram, flat_args_adapter: FlatArgsAdapter | None = None
) -> UnflattenedModule:
    """A program as a tree of modules that has the names of the model's, with copies of its weights.

    flat_args_adapter: changes arguments of another form than those of the export.
    """
    return UnflattenedModule(module, flat_args_adapter)


def _copy_tensors(root: Module, program: ExportedProgram) -> None:
    """Give a module copies of a program's tensors: names of one tensor share a copy."""
    copies: dict[int, Any] = {}
    left = set(program.graph_signature.non_persistent_buffers)
    for name, value in {**program.state_dict, **program.constants}.items():
        if not isinstance(value, Handle):
            continue
        source: Any = value
        if id(source) not in copies:
            made = source.detach().clone()
            if isinstance(source, Parameter):
                made = Parameter(made, requires_grad=source.requires_grad)
            copies[id(source)] = made
        persistent = name in program.state_dict and name not in left
        register(root, name, copies[id(source)], persistent, _empty)


def _empty() -> InterpreterModule:
    return InterpreterModule(Graph())


class _Parts:
    """Makes the graphs of a program's modules: `graph` is that of the whole."""

    def __init__(self, root: UnflattenedModule, program: ExportedProgram):
        self.root = root
        self.kept = {e.fqn: e.signature for e in program.module_call_graph if e.fqn and e.signature}
        *nodes, output = program.graph.nodes
        self.by_name = {node.name: node for node in nodes}
        specs = program.graph_signature.input_specs
        given = list(zip(nodes, specs, strict=False))
        tensors = {n: str(s.target) for n, s in given if s.kind is not InputKind.USER_INPUT}
        values = {**program.state_dict, **program.constants}
        # All names of each tensor, the one of its input first.
        self.names = {
            node: [name, *(k for k, v in values.items() if v is values[name] and k != name)]
            for node, name in tensors.items()
        }
        self.written: dict[str, list[tuple[Any, InterpreterModule, str]]] = {}  # by path
        frame = _Frame(self, None, "", root)
        for node, spec in given:
            if spec.kind is InputKind.USER_INPUT:
                frame.values[node] = frame.copy(node)
        body = nodes[len(specs) :]
        frame.fill(body, 1)
        frame.graph.output(map_arg(output.args[0], frame.value))
        self.graph = frame.graph


def _stack(node: Node) -> list[tuple[str, tuple[str, str]]]:
    """The calls of modules around a node, from the whole inwards: (key, (path, class))."""
    return list(node.meta.get("nn_module_stack", {}).items())


class _Frame:
    """The graph of a call of a module, while it is written. values: its nodes, by those of the
    program. inputs: the nodes of the program that are its placeholders."""

    def __init__(self, parts: _Parts, outer: _Frame | None, path: str, module: Module):
        self.parts, self.outer, self.path, self.module = parts, outer, path, module
        self.graph = Graph()
        self.values: dict[Node, Node] = {}
        self.inputs: list[Node] = []

    def inner_name(self, path: str) -> str | None:
        """The name here of a module or tensor of the program; None if it lies outside."""
        if not self.path:
            return path
        return path[len(self.path) + 1 :] if path.startswith(f"{self.path}.") else None

    def copy(self, node: Node) -> Node:
        return self.noted(self.graph.node_copy(node, self.value), node)

    @staticmethod
    def noted(made: Node, node: Node) -> Node:
        made.meta = dict(node.meta)
        return made

    def value(self, node: Node) -> Node:
        """The node for a node of the program: it gets a tensor of this module, or is an input."""
        if node not in self.values:
            names = map(self.inner_name, self.parts.names.get(node, ()))
            own = next((name for name in names if name is not None), None)
            first = next((n for n in self.graph.nodes if n.op != "placeholder"), None)
            with self.graph.inserting_before(first) if first else nullcontext():
                if own is not None:
                    made = self.graph.create_node("get_attr", own)
                else:
                    self.inputs.append(node)
                    made = self.graph.placeholder(node.name)
            self.values[node] = self.noted(made, node)
        return self.values[node]

    def fill(self, nodes: list[Node], depth: int) -> None:
        """Write nodes that are made inside `depth` calls; those of inner calls into modules."""
        at = 0
        while at < len(nodes):
            inner = _stack(nodes[at])[depth:]
            end = at + 1
            if inner:
                while end < len(nodes) and _stack(nodes[end])[depth : depth + 1] == inner[:1]:
                    end += 1
                self.call(nodes[at:end], depth)
            else:
                self.values[nodes[at]] = self.copy(nodes[at])
            at = end

    def call(self, nodes: list[Node], depth: int) -> None:
        """Write a call of a module, whose graph has these nodes."""
        path, kind = _stack(nodes[0])[depth][1]
        before = self.parts.written.setdefault(path, [])
        name = self.inner_name(path) or path.replace(".", "_")
        name += f"@{len(before)}" if before else ""
        signature = None if before else self.parts.kept.get(path)
        inner = _Frame(self.parts, self, path, self._holder(name, kind))
        own = set(nodes)
        used = [n for n in nodes if any(user not in own for user in n.users)]
        if signature is None:
            inner.fill(nodes, depth + 1)
            results = [inner.values[n] for n in used]
            inner.graph.output(results[0] if len(used) == 1 else results)
        else:
            inner.fill_whole(nodes, depth + 1, signature, used)
        name = self._placed(inner, name, before)
        given: Any = tuple(map(self.value, inner.inputs)), {}
        if signature is not None:
            leaves = [self.argument(each) for each in signature.inputs]
            given = pytree.tree_unflatten(leaves, signature.in_spec)
        made = self.graph.create_node("call_module", name, *given)
        made.meta["nn_module_stack"] = dict(_stack(nodes[0])[: depth + 1])
        places = {node: i for i, node in enumerate(used)}
        if signature is not None:
            made = self._flat(made, signature.out_spec)
            names = [getattr(each, "name", "") for each in signature.outputs]
            places = {node: names.index(node.name) for node in used}
        elif len(used) == 1:
            self.values[used[0]] = made
            return
        for node, i in places.items():
            part = self.graph.call_function(operator.getitem, (made, i))
            self.values[node] = self.noted(part, node)

    def fill_whole(
        self, nodes: list[Node], depth: int, signature: ModuleCallSignature, used: list[Node]
    ) -> None:
        """Write nodes as a graph that takes and gives what its module did."""
        names = {getattr(each, "name", "") for each in signature.outputs}
        if hidden := [n.name for n in used if n.name not in names]:
            self._not_kept(f"{', '.join(hidden)} is used outside of it and isn't in its result")
        args, kwargs = pytree.tree_unflatten([*signature.inputs], signature.in_spec)
        given = tuple(self.graph.placeholder(f"_positional_arg_{i}") for i in range(len(args)))
        named = {name: self.graph.placeholder(name) for name in kwargs}
        flat = self._flat((given, named), signature.in_spec)
        for i, each in enumerate(signature.inputs):
            if not isinstance(each, ConstantArgument):
                node = self.parts.by_name[each.name]
                part = self.graph.call_function(operator.getitem, (flat, i))
                self.values[node] = self.noted(part, node)
        self.fill(nodes, depth)
        leaves = [self.argument(each) for each in signature.outputs]
        if self.inputs:
            self._not_kept(f"it uses {', '.join(n.name for n in self.inputs)} from outside")
        made = (leaves, self._spec(signature.out_spec))
        self.graph.output(self.graph.call_function(pytree.tree_unflatten, made))

    def _not_kept(self, why: str) -> None:
        raise RuntimeError(
            f"unflatten: the signature of {self.path!r} can't be preserved: {why}{at_user_line()}"
        )

    def argument(self, given: Any) -> Any:
        """The value here of an input or output of a signature."""
        if isinstance(given, ConstantArgument):
            return given.value
        return self.value(self.parts.by_name[given.name])

    def _flat(self, tree: Any, spec: pytree.TreeSpec) -> Node:
        return self.graph.call_function(spread.tree_flatten_spec, (tree, self._spec(spec)))

    def _spec(self, spec: pytree.TreeSpec) -> Node:
        count = 0
        while hasattr(self.module, f"_spec_{count}"):
            count += 1
        setattr(self.module, f"_spec_{count}", spec)
        return self.graph.create_node("get_attr", f"_spec_{count}")

    def _holder(self, name: str, kind: str) -> InterpreterModule:
        """The module for a call: the one that has its weights already, or a new one."""
        *path, last = name.split(".")
        at = self.module
        for part in path:
            at = at._modules.get(part) or _added(at, part)
        held = at._modules.get(last) or _added(at, last)
        assert isinstance(held, InterpreterModule)
        held._ty = kind
        return held

    def _placed(
        self, inner: _Frame, name: str, before: list[tuple[Any, InterpreterModule, str]]
    ) -> str:
        """Give a module its graph. Returns its name here: calls with equal graphs share a module.

        before: the graphs of the earlier calls of the same module, with their modules.
        """
        held = inner.module
        assert isinstance(held, InterpreterModule)
        rows = [
            (r.op, None if r.op == "placeholder" else r.target, r.args, r.kwargs)
            for r in rows_of(inner.graph)
        ]
        for known, module, its_name in before:
            if known == rows:
                owner, last = _owner(self.module, name)
                del owner._modules[last]
                owner, last = _owner(self.module, its_name)
                owner._modules.setdefault(last, module)
                return its_name
        before.append((rows, held, name))
        for node in inner.graph.nodes:
            if node.op == "get_attr":
                owner, last = _owner(held, str(node.target))
                if not hasattr(owner, last):
                    source, _ = _owner(self.parts.root, f"{inner.path}.{node.target}")
                    setattr(owner, last, getattr(source, last))
        held.graph = inner.graph
        held.graph.owning_module = held
        return name


def _added(at: Module, name: str) -> InterpreterModule:
    made = _empty()
    at.add_module(name, made)
    return made


def _owner(at: Module, name: str) -> tuple[Module, str]:
    """The module that has what is at a path, and the last part of the path."""
    path, _, last = name.rpartition(".")
    return at.get_submodule(path), last
