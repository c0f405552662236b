"""A graph as steps: a model's own, and those of its branches and loops."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...autograd import enable_grad
from ..errors import OnnxLoaderError
from .step import FAILURES, Step
from .table import find, standard
from .values import Host, Narrow, Value, element_of, on_device


class Graph:
    """The steps of a GraphProto, in an order in which they can run.

    opsets: the version of each domain. around: the names that are known outside.

    inputs: without those that have an initializer. reads: the names that the graph takes from
    outside. initializers: as they are in the file. constants, weights: their values, which the
    model fills in; a weight is a module, the name of its attribute, and the NumPy dtype of a
    Narrow.
    """

    def __init__(self, proto: Any, opsets: Mapping[str, int], around: frozenset[str] = frozenset()):
        initialized = {i.name for i in proto.initializer}
        initialized |= {i.values.name for i in proto.sparse_initializer}
        self.initializers = [*proto.initializer, *proto.sparse_initializer]
        self.inputs = [i.name for i in proto.input if i.name not in initialized]
        self.outputs = [o.name for o in proto.output]
        self.constants: dict[str, Host] = {}
        self.weights: dict[str, tuple[Any, str, Any]] = {}
        own = initialized.union(self.inputs)
        self.steps = _steps(proto.node, opsets, around | own)
        own.update(name for step in self.steps for name in step.outputs)
        reads = [name for step in self.steps for name in step.reads] + self.outputs
        self.reads = [name for name in dict.fromkeys(reads) if name not in own]
        missing = [n for n in self.outputs if not n or (n not in own and n not in around)]
        if missing:
            raise OnnxLoaderError(f"load: nothing computes the output {missing[0]!r}")
        self.output_types = [o.type.tensor_type for o in proto.output]
        self._drops = _last_uses(self.steps, self.outputs)
        self._variables = {name for step in self.steps for name in step.variables}

    def nested(self) -> Iterator[Graph]:
        """This graph and those inside it."""
        yield self
        for step in self.steps:
            for graph in step.graphs.values():
                yield from graph.nested()

    def bind(self, around: Mapping[str, Value], device: Any) -> Body:
        """The graph as a function of its inputs."""
        return Body(self, around, device)

    def run(self, around: Mapping[str, Value], inputs: Sequence[Value], device: Any) -> list[Value]:
        """The outputs. around: the values outside, among which are those in `reads`."""
        if len(inputs) != len(self.inputs):
            raise ValueError(f"expected {len(self.inputs)} values, got {len(inputs)}")
        own: dict[str, Value] = dict(self.constants)
        for name, (owner, attribute, narrow) in self.weights.items():
            tensor = getattr(owner, attribute)
            own[name] = tensor if narrow is None else Narrow(tensor, narrow)
        own.update(zip(self.inputs, inputs, strict=True))
        values: Mapping[str, Value] = ChainMap(own, around) if around else own  # type: ignore[arg-type]
        with enable_grad() if self._variables else nullcontext():
            self._run_steps(own, values, device)
        return [values[name] for name in self.outputs]

    def _run_steps(self, own: dict[str, Value], values: Mapping[str, Value], device: Any) -> None:
        if self._variables:
            self._make_variables(own, own)
        for step, drops in zip(self.steps, self._drops, strict=True):
            own.update(zip(step.outputs, step(values, device), strict=False))
            own.pop("", None)
            if self._variables:
                self._make_variables(own, step.outputs)
            for name in drops:  # values that nobody reads any more
                own.pop(name, None)

    def _make_variables(self, own: dict[str, Value], names: Iterable[str]) -> None:
        """Let autograd follow values by which a later node differentiates."""
        for name in self._variables.intersection(names):
            value: Any = on_device(own[name], None)
            own[name] = value if value.requires_grad else value.detach().requires_grad_()


@dataclass(frozen=True)
class Body:
    """A graph that knows the values around it: a function of its inputs."""

    graph: Graph
    around: Mapping[str, Value]
    device: Any

    def __call__(self, *inputs: Value) -> list[Value]:
        return self.graph.run(self.around, inputs, self.device)

    def none_of(self, place: int) -> Value:
        """No values of an output, stacked: what a loop gives that never turned."""
        kind = self.graph.output_types[place]
        element = element_of(kind.elem_type) if kind.elem_type else np.dtype(np.float32)
        dtype = object if element is str else getattr(element, "np", element)
        return Host(np.zeros((0, *(d.dim_value for d in kind.shape.dim)), dtype))


def _steps(nodes: Sequence[Any], opsets: Mapping[str, int], known: frozenset[str]) -> list[Step]:
    """The nodes as steps. ONNX asks for an order in which each node comes behind those that it
    reads."""
    import onnx

    missing: dict[str, str] = {}
    steps = []
    seen = set(known)
    computed: set[str] = set()
    kinds = onnx.AttributeProto
    for node in nodes:
        domain = standard(node.domain)
        opset = opsets.get(domain, 1)
        operator = find(node.op_type, opset, domain)
        shown = node.name or next(iter(node.output), "")
        if operator is None:
            missing.setdefault(f"{domain}.{node.op_type}" if domain else node.op_type, shown)
            seen.update(node.output)
            continue
        unknown = [name for name in node.input if name and name not in seen]
        if unknown:
            raise OnnxLoaderError(_reason(nodes, unknown[0], f"{shown!r} ({node.op_type})"))
        graphs = {
            a.name: Graph(a.g, opsets, frozenset(seen))
            for a in node.attribute
            if a.type == kinds.GRAPH
        }
        try:
            step = Step(node, operator, opset, graphs)
        except FAILURES as error:
            if isinstance(error, OnnxLoaderError):
                raise
            raise OnnxLoaderError(
                f"load: the node {shown!r} ({node.op_type}) has a wrong attribute: {error}"
            ) from error
        twice = [name for name in step.outputs if name in computed]
        if twice:
            raise OnnxLoaderError(f"load: {step} computes {twice[0]!r}, as an earlier node does")
        computed.update(name for name in step.outputs if name)
        seen.update(step.outputs)
        steps.append(step)
    if missing:
        named = ", ".join(f"{op_type} (node {name!r})" for op_type, name in missing.items())
        raise OnnxLoaderError(f"load: there is no function for the operators {named}")
    return steps


def _reason(nodes: Sequence[Any], name: str, reader: str) -> str:
    """Why a value that a node reads isn't known there."""
    later = next((n for n in nodes if name in n.output), None)
    if later is None:
        return f"load: the node {reader} reads {name!r}, which nothing computes"
    return (
        f"load: the node {reader} reads {name!r}, which a later node, "
        f"{later.name or name!r} ({later.op_type}), computes: the graph has a cycle or isn't sorted"
    )


def _last_uses(steps: Sequence[Step], outputs: Sequence[str]) -> list[list[str]]:
    """For each step the values that no later step reads."""
    seen = set(outputs)
    drops: list[list[str]] = []
    for step in reversed(steps):
        names = {n for n in (*step.reads, *step.outputs) if n} - seen
        drops.append(sorted(names))
        seen |= names
    return drops[::-1]
