"""Groups of nodes become modules of their own, which the graph calls."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import getitem as _getitem
from typing import Any

from ...graph import Graph
from ...graph_module import GraphModule
from ...node import Node
from ..tools_common import stable_topological_sort

__all__ = [
    "erase_nodes",
    "fuse_as_graphmodule",
    "fuse_by_partitions",
    "insert_subgm",
    "topo_sort",
    "validate_partition",
]


def topo_sort(nodes: Iterable[Node]) -> list[Node]:
    """Nodes of one graph, each behind those that it reads; apart from that the order stays."""
    left = dict.fromkeys(nodes)
    done: list[Node] = []
    while left:
        ready = next((n for n in left if not any(i in left for i in n.all_input_nodes)), None)
        if ready is None:
            raise AssertionError("topo_sort: the nodes read each other in a circle")
        del left[ready]
        done.append(ready)
    return done


def validate_partition(partition: Sequence[Node]) -> bool:
    """Whether nothing outside depends on some of the nodes while others depend on it."""
    return is_one_call(set(partition))


def is_one_call(group: set[Node], others: Sequence[set[Node]] = ()) -> bool:
    """Whether the nodes can be one call, beside other groups, which are calls too."""
    stack = [u for n in group for u in n.users if u not in group]
    seen: set[Node] = set()
    while stack:
        node = stack.pop()
        if node in group:
            return False
        if node in seen:
            continue
        whole = next((g for g in others if node in g and not g & group), {node})
        seen |= whole
        stack += [u for n in whole for u in n.users]
    return True


def fuse_as_graphmodule(
    gm: GraphModule,
    nodes: Sequence[Node],
    module_name: str,
    partition_lookup_table: Any = None,
    *,
    always_return_tuple: bool = False,
) -> tuple[GraphModule, tuple[Node, ...], tuple[Node, ...]]:
    """(a module of these nodes, the nodes that it reads, those of its own that others read)."""
    ordered = topo_sort(nodes)
    own = set(ordered)
    if not validate_partition(ordered):
        raise AssertionError("Invalid partition, found dependency cycles")
    graph = Graph()
    inputs = dict.fromkeys(i for n in ordered for i in n.all_input_nodes if i not in own)
    values = {n: graph.placeholder(n.name) for n in inputs}
    for outer, inner in values.items():
        inner.meta = dict(outer.meta)
    for n in ordered:
        values[n] = graph.node_copy(n, values.__getitem__)
    outputs = [n for n in ordered if any(u not in own for u in n.users)]
    results = tuple(values[n] for n in outputs)
    graph.output(results if len(results) != 1 or always_return_tuple else results[0])
    graph.lint()
    return GraphModule(gm, graph, module_name), tuple(inputs), tuple(outputs)


def insert_subgm(
    gm: GraphModule,
    sub_gm: GraphModule,
    orig_inputs: tuple[Node, ...],
    orig_outputs: tuple[Node, ...],
    insertion_point: Node | None = None,
) -> GraphModule:
    """Call a module in the place of the nodes that it was made of."""
    name = type(sub_gm).__name__
    gm.add_submodule(name, sub_gm)
    place = gm.graph.output_node() if insertion_point is None else insertion_point
    add = gm.graph.inserting_before if insertion_point is None else gm.graph.inserting_after
    with add(place):
        call = gm.graph.call_module(name, orig_inputs)
    returned = sub_gm.graph.output_node().args[0]
    if isinstance(returned, Node):
        orig_outputs[0].replace_all_uses_with(call, propagate_meta=True)
        return gm
    with gm.graph.inserting_after(call):
        parts = [gm.graph.call_function(_getitem, (call, i)) for i in range(len(orig_outputs))]
    for old, new in zip(orig_outputs, parts, strict=True):
        old.replace_all_uses_with(new, propagate_meta=True)
    return gm


def erase_nodes(gm: GraphModule, nodes: Sequence[Node]) -> None:
    """Erase nodes, the last first."""
    for n in reversed(topo_sort(nodes)):
        gm.graph.erase_node(n)


def fuse_by_partitions(
    gm: GraphModule,
    partitions: Sequence[Any],
    prefix: str = "fused_",
    always_return_tuple: bool = False,
) -> GraphModule:
    """Put each group of nodes into a module, `fused_0`, `fused_1`, …"""
    for i, group in enumerate(partitions):
        nodes = topo_sort(group)
        sub, inputs, outputs = fuse_as_graphmodule(
            gm, nodes, f"{prefix}{i}", always_return_tuple=always_return_tuple
        )
        insert_subgm(gm, sub, inputs, outputs, insertion_point=nodes[-1])
        erase_nodes(gm, nodes)
    return stable_topological_sort(gm)
