"""Exported programs: graphs whose inputs are the weights and the user's values."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, NoReturn

from tilewright.ir.location import at_user_line

from .. import recording
from ..fx.concrete import Watcher, prune
from ..fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from ..fx.flattening import FlatCodeGen
from ..fx.graph import Graph
from ..fx.graph_module import GraphModule, take_tensors
from ..fx.interpreter import Interpreter
from ..fx.node import Node
from ..fx.pickling import Row, graph_from, rows_of
from ..nn import Module, Parameter
from ..recording import Handle
from ..utils._pytree import TreeSpec, tree_flatten, tree_unflatten
from .aligning import align
from .calls import Call
from .decomp_utils import CustomDecompTable
from .dynamic_shapes import UNBOUNDED
from .graph_signature import (
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from .recording import Example, Recorded, Symbol

__all__ = [
    "CallSpec",
    "ExportedProgram",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "default_decompositions",
]


class CallSpec(NamedTuple):
    in_spec: TreeSpec | None
    out_spec: TreeSpec | None


@dataclass
class ModuleCallSignature:
    inputs: list[Any]
    outputs: list[Any]
    in_spec: TreeSpec
    out_spec: TreeSpec
    forward_arg_names: list[str] | None = None

    def replace_all_uses_with(self, original_node: Node, new_node: Node) -> None:
        """Name another node wherever a node is an input or output."""
        for each in (*self.inputs, *self.outputs):
            if each.name == original_node.name:
                each.name = new_node.name


@dataclass
class ModuleCallEntry:
    fqn: str
    signature: ModuleCallSignature | None = None


class ValueRanges(NamedTuple):
    lower: int
    upper: int

    def __repr__(self) -> str:
        return f"VR[{self.lower}, {'int_oo' if self.upper == UNBOUNDED else self.upper}]"


class Sized(NamedTuple):
    """A size of an input: factor * symbol + offset."""

    symbol: str
    factor: int
    offset: int


class Expected(NamedTuple):
    """An input: a tensor with sizes, a number with a symbol, or a constant."""

    name: str
    tensor: bool
    dtype: Any
    sizes: tuple[Any, ...]
    value: Any


class Inputs:
    """Takes a call's arguments apart, and holds them to what was exported."""

    def __init__(self, spec: TreeSpec, expected: list[Expected], ranges: Mapping[str, ValueRanges]):
        self.spec, self.expected, self.ranges = spec, expected, dict(ranges)

    def __call__(self, args: Any, kwargs: Any) -> list[Any]:
        leaves, spec = tree_flatten((args, kwargs))
        if spec != self.spec:
            raise ValueError(
                "the arguments have another structure than those that the program was exported "
                f"with: expected {self.spec}, got {spec}{at_user_line()}"
            )
        self.check(leaves)
        return leaves

    def check(self, leaves: list[Any]) -> None:
        """Raises an error for leaves of other sizes or types than the program is for."""
        sizes: dict[str, int] = {}
        for leaf, wanted in zip(leaves, self.expected, strict=True):
            self._check(leaf, wanted, sizes)

    def _check(self, leaf: Any, wanted: Expected, sizes: dict[str, int]) -> None:
        name = wanted.name
        if not wanted.tensor:
            if wanted.sizes:
                self._size(name, leaf, wanted.sizes[0], sizes)
            elif leaf is not wanted.value and leaf != wanted.value:
                _guard(f"{name} == {wanted.value!r}", leaf)
            return
        if not isinstance(leaf, Handle):
            raise TypeError(f"{name}: expected a Tensor, got {type(leaf).__name__}{at_user_line()}")
        if leaf.dtype is not wanted.dtype:  # type: ignore[attr-defined]
            _guard(f"{name}.dtype == {wanted.dtype}", leaf.dtype)  # type: ignore[attr-defined]
        shape = leaf.shape  # type: ignore[attr-defined]
        if len(shape) != len(wanted.sizes):
            _guard(f"{name}.dim() == {len(wanted.sizes)}", len(shape))
        for axis, (size, known) in enumerate(zip(shape, wanted.sizes, strict=True)):
            self._size(f"{name}.size()[{axis}]", size, known, sizes)

    def _size(self, name: str, size: int, wanted: Any, sizes: dict[str, int]) -> None:
        if not isinstance(wanted, Sized):
            if size != wanted:
                _guard(f"{name} == {wanted}", size)
            return
        value, rest = divmod(size - wanted.offset, wanted.factor)
        known = sizes.setdefault(wanted.symbol, value)
        if rest or known != value:
            text = wanted.symbol if wanted.factor == 1 else f"{wanted.factor}*{wanted.symbol}"
            text += f" + {wanted.offset}" if wanted.offset else ""
            _guard(f"{name} == {text} with {wanted.symbol} = {known}", size)
        low, high = self.ranges[wanted.symbol]
        if not low <= value <= high:
            _guard(f"{low} <= {wanted.symbol} <= {high}", value)


def _guard(text: str, found: Any) -> NoReturn:
    raise AssertionError(f"Guard failed: {text}, got {found}{at_user_line()}")


class Outputs:
    """Puts a call's results together."""

    def __init__(self, spec: TreeSpec):
        self.spec = spec

    def __call__(self, flat: Any) -> Any:
        return tree_unflatten(list(flat), self.spec)


class ExportedProgram:
    """A program as a graph, with its weights.

    graph_module: the graph, whose inputs are the weights and the leaves of the arguments, by
    `graph_signature`. state_dict: parameters and persistent buffers. constants: other tensors.
    range_constraints: the ranges of sizes that may differ. `module()` gives a module to call.
    """

    graph_signature: ExportGraphSignature
    state_dict: dict[str, Any]
    constants: dict[str, Any]
    example_inputs: tuple[Any, Any] | None

    def __init__(
        self,
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, Any],
        constants: dict[str, Any],
        inputs: Inputs,
        outputs: Outputs,
        arguments: tuple[list[str], list[str]],
        example_inputs: tuple[Any, Any] | None = None,
        name: str = "GraphModule",
        calls: tuple[ModuleCallEntry, ...] = (),
    ):
        self._graph_module = GraphModule(Module(), graph, "GraphModule")
        self.graph_signature = graph_signature
        self.state_dict, self.constants = state_dict, constants
        self._inputs, self._outputs, self._arguments = inputs, outputs, arguments
        self.example_inputs, self._name, self._calls = example_inputs, name, calls

    # ---- parts -------------------------------------------------------------------------------

    @property
    def graph_module(self) -> GraphModule:
        return self._graph_module

    @property
    def graph(self) -> Graph:
        return self._graph_module.graph

    @property
    def range_constraints(self) -> dict[str, ValueRanges]:
        return dict(self._inputs.ranges)

    @property
    def call_spec(self) -> CallSpec:
        return CallSpec(self._inputs.spec, self._outputs.spec)

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        """The call of the whole module, then the modules inside: with the signatures of those that
        `preserve_module_call_signature` named."""
        signature = ModuleCallSignature(
            [s.arg for s in self.graph_signature.input_specs if s.kind is InputKind.USER_INPUT],
            [s.arg for s in self.graph_signature.output_specs],
            self._inputs.spec,
            self._outputs.spec,
            [*self._arguments[0], *self._arguments[1]],
        )
        return [ModuleCallEntry("", signature), *self._calls]

    @property
    def dialect(self) -> str:
        """'TORCH': the graph calls functions and methods of torch by their public names."""
        return "TORCH"

    @property
    def verifier(self) -> Any:
        return None

    @property
    def verifiers(self) -> list[Any]:
        return []

    @property
    def tensor_constants(self) -> dict[str, Any]:
        return self.constants

    def named_parameters(self) -> Iterator[tuple[str, Any]]:
        for name in self.graph_signature.parameters:
            yield name, self.state_dict[name]

    def parameters(self) -> Iterator[Any]:
        for _, value in self.named_parameters():
            yield value

    def named_buffers(self) -> Iterator[tuple[str, Any]]:
        left = self.graph_signature.non_persistent_buffers
        for name in self.graph_signature.buffers:
            yield name, (self.constants if name in left else self.state_dict)[name]

    def buffers(self) -> Iterator[Any]:
        for _, value in self.named_buffers():
            yield value

    def validate(self) -> None:
        """RuntimeError unless the graph is whole."""
        self.graph.lint()

    # ---- running -----------------------------------------------------------------------------

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise RuntimeError(
            "Unable to call ExportedProgram directly. You should use `exported_program.module()` "
            "instead."
        )

    def module(self, check_guards: bool = True) -> GraphModule:
        """A module that takes the arguments of the original one, and shares the weights here."""
        root = Module()
        values: dict[str, Any] = {}
        graph = Graph()
        copies: dict[Node, Node] = {}
        specs = iter(self.graph_signature.input_specs)
        buffers = set(self.graph_signature.non_persistent_buffers)
        for node in self.graph.nodes:
            if node.op == "placeholder":
                spec = next(specs)
                if spec.kind is not InputKind.USER_INPUT:
                    target = str(spec.target)
                    values[target] = self._value(spec)
                    copies[node] = graph.get_attr(target)
                    continue
            copies[node] = graph.node_copy(node, copies.__getitem__)
        graph.set_codegen(FlatCodeGen(*self._arguments))
        for target, value in {**self.state_dict, **values}.items():
            register(root, target, value, target not in buffers and target in self.state_dict)
        made = GraphModule(root, graph, self._name)
        take_tensors(made, root)
        made._flatten, made._unflatten = self._inputs, self._outputs
        return made

    def _value(self, spec: InputSpec) -> Any:
        name = str(spec.target)
        return self.state_dict[name] if name in self.state_dict else self.constants[name]

    def run_decompositions(
        self, decomp_table: Mapping[Any, Callable[..., Any]] | None = None, **options: Any
    ) -> ExportedProgram:
        """The program with calls of functions in the place of others.

        decomp_table: by functions of torch, as the graph calls them, functions that call others.
        Without a table the graph stays as it is: its calls are torch's public functions, which
        tilewright decomposes when it compiles.
        """
        table = dict(decomp_table or {})
        if not table:
            return copy.copy(self)

        class Replacing(Interpreter):
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                return table.get(target, target)(*args, **kwargs)

        watch = Watcher(Module(), True, GuardOnDataDependentSymNode)
        user = iter(tree_flatten(self.example_inputs)[0])
        values: list[Any] = []
        for old, spec in zip(_placeholders(self.graph), self.graph_signature.input_specs):
            own = spec.kind is InputKind.USER_INPUT
            value = next(user) if own else self._value(spec)
            value = value.detach().clone() if isinstance(value, Handle) else value  # type: ignore[attr-defined]
            node = watch.graph.placeholder(str(old.target))
            if isinstance(value, Handle):
                watch.note_input(node, value)
            values.append(value)
        runner = Replacing(self.graph_module)
        with recording.grad_mode(True):
            result = watch.run(runner.run, values, {})
        watch.graph.output(tuple(watch.create_arg(each) for each in result))
        if not self.range_constraints:
            align([watch.graph], {})
        prune(watch.graph)
        made = copy.copy(self)
        made._graph_module = GraphModule(watch.root, watch.graph, "GraphModule")
        signature = copy.copy(self.graph_signature)
        signature.output_specs = _output_specs(watch.graph)
        made.graph_signature = signature
        return made

    # ---- copies ------------------------------------------------------------------------------

    def __copy__(self) -> ExportedProgram:
        return _rebuilt(*self.__reduce__()[1])

    def __deepcopy__(self, memo: dict[int, Any]) -> ExportedProgram:
        return _rebuilt(*copy.deepcopy(self.__reduce__()[1], memo))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        parts = (self.graph_signature, self.state_dict, self.constants, self._inputs)
        more = (self._outputs, self._arguments, self.example_inputs, self._name, self._calls)
        return _rebuilt, (rows_of(self.graph), *parts, *more)

    def __str__(self) -> str:
        code = self._graph_module.print_readable(print_output=False)
        code = code.replace("\n", "\n    ")
        return (
            f"ExportedProgram:\n    {code}\nGraph signature: {self.graph_signature}\n"
            f"Range constraints: {self.range_constraints}\n"
        )

    __repr__ = __str__


def _rebuilt(rows: list[Row], *parts: Any) -> ExportedProgram:
    return ExportedProgram(graph_from(rows), *parts)


def _placeholders(graph: Graph) -> Iterator[Node]:
    return (n for n in graph.nodes if n.op == "placeholder")


def register(
    root: Module,
    target: str,
    value: Any,
    persistent: bool,
    made: Callable[[], Module] = Module,
) -> None:
    """Give a module a parameter or buffer at a path, with new modules on the way."""
    *path, name = target.split(".")
    for part in path:
        inner = root._modules.get(part)
        if inner is None:
            inner = made()
            root.add_module(part, inner)
        root = inner
    if isinstance(value, Parameter):
        root.register_parameter(name, value)
    else:
        root.register_buffer(name, value, persistent)


def build(example: Example, recorded: Recorded, symbols: list[Symbol]) -> ExportedProgram:
    """The program of a recorded call."""
    module, graph = example.module, recorded.graph
    state = {k: v for k, v in module.state_dict(keep_vars=True).items() if isinstance(v, Handle)}
    parameters = dict(module.named_parameters())
    buffers = dict(module.named_buffers())
    constants = {k: v for k, v in buffers.items() if k not in state}
    used = [str(n.target) for n in graph.nodes if n.op == "get_attr"]
    own = {n for n in used if n not in parameters and n not in buffers}
    for name in sorted(own):
        constants[name] = _attribute(recorded.root, name)
    specs: list[InputSpec] = []
    lifted: dict[str, Node] = {}
    wanted = [
        *((n, InputKind.PARAMETER, "p") for n in parameters),
        *((n, InputKind.BUFFER, "b") for n in buffers),
        *((n, InputKind.CONSTANT_TENSOR, "c") for n in sorted(own)),
    ]
    first = next(iter(graph.nodes))
    with graph.inserting_before(first):
        for name, kind, prefix in wanted:
            node = graph.placeholder(re.sub(r"\W", "_", f"{prefix}_{name}"))
            kept = (name in state) if kind is InputKind.BUFFER else None
            specs.append(InputSpec(kind, TensorArgument(node.name), name, kept))
            lifted[name] = node
    for node in list(graph.nodes):
        if node.op == "get_attr":
            node.replace_all_uses_with(lifted[str(node.target)])
            graph.erase_node(node)
    sized = {
        place: Sized(s.name, getattr(dim, "factor", 1), getattr(dim, "offset", 0))
        for s in symbols
        for place, dim in s.places
    }
    expected: list[Expected] = []
    for i, (leaf, node) in enumerate(zip(example.leaves, recorded.inputs, strict=True)):
        expected.append(_expected(i, example.names[i], leaf, sized))
        argument: Any = TensorArgument(node.name)
        if not isinstance(leaf, Handle):
            argument = (
                SymIntArgument(node.name)
                if (i, None) in sized
                else ConstantArgument(node.name, leaf)
            )
        specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
    ranges = {s.name: ValueRanges(s.min, s.max) for s in symbols}
    return ExportedProgram(
        graph,
        ExportGraphSignature(specs, _output_specs(graph)),
        state,
        constants,
        Inputs(example.spec, expected, ranges),
        Outputs(recorded.out_spec),
        (example.positional, list(example.kwargs)),
        (example.args, example.kwargs),
        type(module).__name__,
        _entries(module, recorded.calls),
    )


def _entries(module: Module, calls: Mapping[str, Call]) -> tuple[ModuleCallEntry, ...]:
    """The modules inside, with the signatures of the calls that were noted."""
    made = {
        path: ModuleCallSignature(
            list(map(_argument, call.inputs)),
            list(map(_argument, call.outputs)),
            call.in_spec,
            call.out_spec,
        )
        for path, call in calls.items()
    }
    names = (name for name, _ in module.named_modules(remove_duplicate=False) if name)
    return tuple(ModuleCallEntry(name, made.get(name)) for name in names)


def _attribute(root: Module, path: str) -> Any:
    value: Any = root
    for part in path.split("."):
        value = getattr(value, part)
    return value


def _expected(number: int, name: str, leaf: Any, sized: Mapping[Any, Sized]) -> Expected:
    if isinstance(leaf, Handle):
        shape = leaf.shape  # type: ignore[attr-defined]
        sizes = tuple(sized.get((number, axis), n) for axis, n in enumerate(shape))
        return Expected(name, True, leaf.dtype, sizes, None)  # type: ignore[attr-defined]
    if (number, None) in sized:
        return Expected(name, False, None, (sized[number, None],), None)
    return Expected(name, False, None, (), leaf)


def _output_specs(graph: Graph) -> list[OutputSpec]:
    return [
        OutputSpec(OutputKind.USER_OUTPUT, _argument(value), None)
        for value in graph.output_node().args[0]
    ]


def _argument(value: Any) -> Any:
    """What tells of a node's value, or of a constant."""
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    number = isinstance(value.meta.get("value"), (int, float))
    return (SymIntArgument if number else TensorArgument)(value.name)


def default_decompositions() -> CustomDecompTable:
    """An empty table: composites are decomposed when a plan is compiled."""
    return CustomDecompTable()
