"""torch.fx.passes.split_module: a graph module as modules that are called one by one."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from ...nn import Module
from ..graph import Graph
from ..graph_module import GraphModule
from ..node import Node, map_arg

__all__ = ["split_module"]


def split_module(
    m: GraphModule,
    root_m: Module,
    split_callback: Callable[[Node], int],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool | None = False,
    keep_original_node_name: bool | None = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """The module with a submodule `submod_<part>` for each part of its graph.

    split_callback: the part of a node. qualname_map: gets the old paths of modules by the new ones.
    tuple_return: each part gives a tuple, also of one value. RuntimeError if parts need each other.
    """
    affix = f"{partition_affix}_" if partition_affix else ""
    calls = [n for n in m.graph.nodes if n.op not in ("placeholder", "get_attr", "output")]
    part_of = {n: split_callback(n) for n in calls}
    order = _ordered(calls, part_of, bool(keep_original_order))
    outer = Graph()
    values: dict[Node, Any] = {}
    for node in m.graph.nodes:
        if node.op in ("placeholder", "get_attr"):
            values[node] = outer.node_copy(node)
    made: dict[str, Any] = {}
    for part in order:
        inside = [n for n in calls if part_of[n] == part]
        inputs = dict.fromkeys(
            each for n in inside for each in n.all_input_nodes if part_of.get(each) != part
        )
        outputs = [n for n in inside if any(part_of.get(u) != part for u in n.users)]
        graph = Graph()
        own: dict[Node, Node] = {n: graph.placeholder(n.name) for n in inputs}
        for node in inside:
            own[node] = graph.node_copy(node, own.__getitem__)
            if node.op == "call_module" and qualname_map is not None:
                qualname_map[f"submod_{affix}{part}.{node.target}"] = str(node.target)
        single = len(outputs) == 1 and not tuple_return
        results = [own[n] for n in outputs]
        graph.output(results[0] if single else tuple(results))
        name = f"submod_{affix}{part}"
        made[name] = GraphModule(root_m, graph)
        call = outer.call_module(name, tuple(values[n] for n in inputs))
        for i, node in enumerate(outputs):
            values[node] = call if single else outer.call_function(operator.getitem, (call, i))
    outer.output(map_arg(m.graph.output_node().args[0], values.__getitem__))
    parts: dict[str, Any] = dict(made)
    for node in m.graph.nodes:
        if node.op == "get_attr":
            value: Any = root_m
            for each in str(node.target).split("."):
                value = getattr(value, each)
            parts[str(node.target)] = value
    return GraphModule(parts, outer)


def _ordered(calls: list[Node], part_of: dict[Node, int], as_met: bool) -> list[int]:
    """The parts, each behind those that it needs."""
    met = list(dict.fromkeys(part_of[n] for n in calls))
    needs: dict[int, set[int]] = {part: set() for part in met}
    for node in calls:
        for each in node.all_input_nodes:
            if each in part_of and part_of[each] != part_of[node]:
                needs[part_of[node]].add(part_of[each])
    order: list[int] = []
    while len(order) < len(met):
        ready = [p for p in met if p not in order and needs[p] <= set(order)]
        if not ready:
            raise RuntimeError("split_module: cycle exists between partitions!")
        order.append(ready[0] if as_met else min(ready))
    return order
