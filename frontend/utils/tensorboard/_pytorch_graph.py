"""The graph of a model's calls, as TensorBoard draws it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tensorboard.compat.proto.attr_value_pb2 import AttrValue
from tensorboard.compat.proto.graph_pb2 import GraphDef
from tensorboard.compat.proto.node_def_pb2 import NodeDef
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.versions_pb2 import VersionDef

from tilewright.ir.node import Node

from ... import recording
from ...nn import Module
from ...recording import Handle, resolve
from .. import _pytree
from ..module_tracker import ModuleTracker


class _Calls:
    """Takes down the calls of a model, each in the scope of the module that makes it."""

    def __init__(self, model: Module):
        self.tracker = ModuleTracker()
        self.top = type(model).__name__
        self.nodes: list[Any] = []
        self.names: dict[Node, str] = {}
        self._taken: set[str] = set()

    def add(self, name: str, op: str, node: Node, inputs: Sequence[str] = ()) -> str:
        """Add what computes `node`, under a name of its own."""
        unique, count = name, 0
        while unique in self._taken:
            count += 1
            unique = f"{name}_{count}"
        self._taken.add(unique)
        shape = TensorShapeProto(dim=[TensorShapeProto.Dim(size=n) for n in node.shape])
        shapes = AttrValue(list=AttrValue.ListValue(shape=[shape]))
        made = NodeDef(name=unique, op=op, input=inputs, attr={"_output_shapes": shapes})
        self.nodes.append(made)
        self.names[node] = unique
        return unique

    def called(self, result: Any, nodes: Sequence[Any]) -> None:
        outs = result if isinstance(result, tuple) else (result,)
        inner = [p for p in self.tracker.parents if p != "Global"]
        path = max(inner, key=len, default="").split(".")[1:]  # without the model's own name
        name = "/".join([self.top, *path, outs[0].op.name])
        inputs = dict.fromkeys(i for n in nodes if isinstance(n, Node) for i in self._sources(n))
        self.add(name, f"aten::{outs[0].op.name}", outs[0], list(inputs))
        self.names.update((out, self.names[outs[0]]) for out in outs)

    def passed(self, number: int, inputs: Mapping[Node, set[Node]]) -> None:
        """A backward pass, which a forward pass may make, is not drawn."""

    def _sources(self, node: Node) -> Iterable[str]:
        """The names of what a node is made of by views."""
        known = self.names.get(node)
        if known is not None:
            yield known
        else:
            for operand in node.operands:
                yield from self._sources(operand)


def graph(model: Module, args: Any, verbose: bool = False, use_strict_trace: bool = True) -> Any:
    """The graph of model(*args), as a GraphDef. args: one tensor, or a tuple of arguments."""
    args = args if isinstance(args, tuple) else (args,)
    training = model.training
    calls = _Calls(model)
    with recording.hold(), recording.grad_mode(False):
        for i, t in enumerate(v for v in _pytree.tree_leaves(args) if isinstance(v, Handle)):
            calls.add(f"input/{i}", "IO Node", resolve(t))
        for name, t in (*model.named_parameters(), *model.named_buffers()):
            calls.add(f"{calls.top}/{name.replace('.', '/')}", "Parameter", resolve(t))
        handles = calls.tracker._watch_forward()
        before = recording.clock.watching
        recording.set_watching(calls)
        try:
            results = model.eval()(*args)
        finally:
            recording.set_watching(before)
            for handle in handles:
                handle.remove()
            model.train(training)
        for i, t in enumerate(v for v in _pytree.tree_leaves(results) if isinstance(v, Handle)):
            node = resolve(t)
            calls.add(f"output/{i}", "IO Node", node, list(calls._sources(node)))
    if verbose:
        print("\n".join(f"{n.name} = {n.op}({', '.join(n.input)})" for n in calls.nodes))
    return GraphDef(node=calls.nodes, versions=VersionDef(producer=22))
