"""Patterns in graphs, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..nn import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_arg
from .passes.utils.matcher_utils import InternalMatch, SubgraphMatcher

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


@dataclass
class ReplacedPatterns:
    """A place where a pattern was, as in Match, and the nodes that took its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


class Match(NamedTuple):
    """A place where a pattern is: the pattern's node at which the search began, and the graph's
    node for each of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


def _graph_of(part: Any) -> Graph:
    if isinstance(part, Graph):
        return part
    return part.graph if isinstance(part, GraphModule) else symbolic_trace(part).graph


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace each part of a module's graph that is as `pattern`, without overlaps; returns the
    parts. Both are functions or modules with the same inputs."""
    return [Match(r.anchor, r.nodes_map) for r in _replaced(gm, pattern, replacement, None)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[[InternalMatch, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Any] | None = None,
) -> list[ReplacedPatterns]:
    """As replace_pattern, where all of match_filters(match, graph, pattern) are true.

    ignore_literals: whether numbers and the like may differ from the pattern's.
    replacement_callback: gives the replacement of a match, in the place of `replacement`.
    """
    return _replaced(gm, pattern, replacement, match_filters, replacement_callback, ignore_literals)


def _replaced(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    filters: Any,
    callback: Any = None,
    ignore_literals: bool = False,
) -> list[ReplacedPatterns]:
    graph, shape = gm.graph, _graph_of(pattern)
    fixed = None if callback is not None else _graph_of(replacement)
    matches = [
        m
        for m in SubgraphMatcher(shape, ignore_literals=ignore_literals).match(graph)
        if all(f(m, graph, shape) for f in filters or ())
    ]
    inside = [n for n in shape.nodes if n.op not in ("placeholder", "output")]
    replaced: dict[Any, Any] = {}
    done: list[ReplacedPatterns] = []
    for match in matches:
        new = _graph_of(callback(match, graph, shape)) if fixed is None else fixed
        before = set(graph.nodes)
        inputs = [n for n in new.nodes if n.op == "placeholder"]
        given = [replaced.get(v, v) if isinstance(v, Node) else v for v in match.placeholder_nodes]
        values: dict[Node, Any] = dict(zip(inputs, given))
        users = {u for n in match.returning_nodes for u in n.users}
        users -= {match.nodes_map[n] for n in inside}
        first = next((n for n in graph.nodes if n in users), match.returning_nodes[-1])
        with graph.inserting_before(first):
            result = map_arg(graph.graph_copy(new, values), lambda n: n)
        results = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(results) != len(match.returning_nodes):
            raise ValueError(
                f"replace_pattern: the replacement gives {len(results)} values, and the pattern "
                f"{len(match.returning_nodes)}"
            )
        for old, value in zip(match.returning_nodes, results, strict=True):
            old.replace_all_uses_with(value)
            replaced[old] = value
        added = [n for n in graph.nodes if n not in before]
        done.append(ReplacedPatterns(match.anchors[0], match.nodes_map, added))
        for n in reversed(inside):
            graph.erase_node(match.nodes_map[n])
    if isinstance(replacement, Module):
        for node in _graph_of(replacement).nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, str(node.target))
    gm.recompile()
    return done
