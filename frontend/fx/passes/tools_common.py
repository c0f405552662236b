"""What passes ask of nodes, and the order of a graph's nodes."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from ...nn import Module
from ...nn.modules import path_of
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node
from ..targets import qualified_name

__all__ = [
    "get_node_target",
    "is_node_output_tensor",
    "legalize_graph",
    "stable_topological_sort",
]

CALLABLE_NODE_OPS = {"call_module", "call_function", "call_method"}


def get_node_target(submodules: Mapping[str, Module], node: Node) -> str:
    """The full name, as PyTorch's, of what a node calls: a module's class, a function, a method."""
    if node.op not in CALLABLE_NODE_OPS:
        raise AssertionError(
            "Expect op types of call_module, call_function, call_method, but found " + node.op
        )
    if node.op == "call_module":
        module: Any = submodules[str(node.target)]
        return path_of(getattr(module, "_base_class_origin", type(module)))
    return str(node.target) if isinstance(node.target, str) else qualified_name(node.target)


def is_node_output_tensor(node: Node) -> bool:
    """Whether a node's value is a tensor, by the note of a ShapeProp."""
    kind = node.meta.get("type")
    return isinstance(kind, type) and any(c.__name__ == "Tensor" for c in kind.__mro__)


def stable_topological_sort(gm: GraphModule) -> GraphModule:
    """Give the module a graph in which each node comes behind those that it reads; apart from that
    the order stays. RuntimeError if nodes read each other in a circle."""
    nodes = list(gm.graph.nodes)
    place = {n: i for i, n in enumerate(nodes)}
    left = {n: len(n.all_input_nodes) for n in nodes}
    ready = [place[n] for n in nodes if not left[n]]
    graph = Graph(tracer_cls=getattr(gm.graph, "_tracer_cls", None))
    made: dict[Node, Node] = {}
    while ready:
        node = nodes[heapq.heappop(ready)]
        made[node] = graph.node_copy(node, made.__getitem__)
        for user in node.users:
            left[user] -= 1
            if not left[user]:
                heapq.heappush(ready, place[user])
    if len(made) < len(nodes):
        raise RuntimeError(
            f"Input graph has cycles, unable to add {[n for n in nodes if n not in made]}"
        )
    graph._codegen = gm.graph._codegen
    gm.graph = graph
    return gm


legalize_graph = stable_topological_sort
