"""Graphs as plain rows, by which they are pickled."""

from __future__ import annotations

from typing import Any, NamedTuple

from .graph import CodeGen, Graph
from .graph_module import GraphModule
from .node import Node, map_arg


class Place(NamedTuple):
    """Stands for a node of the graph: its number."""

    number: int


class Row(NamedTuple):
    op: str
    target: Any
    args: Any
    kwargs: Any
    name: str
    type: Any
    meta: dict[str, Any]


_KEPT = ("pure", "fact", "value", "stack_trace", "size", "nn_module_stack")


def rows_of(graph: Graph) -> list[Row]:
    """The nodes of a graph, with plain containers in their arguments."""
    places = {node: Place(i) for i, node in enumerate(graph.nodes)}
    return [
        Row(
            node.op,
            node.target,
            _plain(map_arg(node.args, places.__getitem__)),
            _plain(map_arg(node.kwargs, places.__getitem__)),
            node.name,
            node.type,
            {k: node.meta[k] for k in _KEPT if k in node.meta},
        )
        for node in graph.nodes
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, Place):
        return value
    if isinstance(value, tuple):
        parts = [_plain(each) for each in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, slice):
        return slice(*map(_plain, (value.start, value.stop, value.step)))
    return value


def graph_from(rows: list[Row], codegen: CodeGen | None = None) -> Graph:
    """The graph of rows."""
    graph = Graph()
    if codegen is not None:
        graph.set_codegen(codegen)
    made: list[Node] = []

    def nodes(value: Any) -> Any:
        if isinstance(value, Place):
            return made[value.number]
        if isinstance(value, tuple):
            parts = [nodes(each) for each in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
        if isinstance(value, list):
            return [nodes(each) for each in value]
        if isinstance(value, dict):
            return {k: nodes(v) for k, v in value.items()}
        if isinstance(value, slice):
            return slice(*map(nodes, (value.start, value.stop, value.step)))
        return value

    for row in rows:
        node = graph.create_node(
            row.op, row.target, nodes(row.args), nodes(row.kwargs), row.name, row.type
        )
        node.meta = dict(row.meta)
        made.append(node)
    return graph


def module_from(state: dict[str, Any], rows: list[Row], name: str) -> GraphModule:
    """A graph module of its attributes and the rows of its graph."""
    from ..nn import Module

    made = GraphModule(Module(), Graph(), name)
    graph, own = made._graph, dict(state)
    Module.__setstate__(made, own)
    made.__dict__["_graph"] = graph
    made.graph = graph_from(rows)
    return made


def reduced(module: GraphModule) -> tuple[Any, ...]:
    """How a graph module is pickled by its rows: (function, arguments)."""
    state = {
        k: v
        for k, v in module.__dict__.items()
        if k not in ("_graph", "_code", "forward", "_tracer_cls")
    }
    return module_from, (state, rows_of(module._graph), type(module).__name__)


__all__ = ["Place", "Row", "graph_from", "module_from", "reduced", "rows_of"]
