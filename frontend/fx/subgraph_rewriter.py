"""Patterns in graphs, and what takes their place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ..nn import Module
from ._symbolic_trace import symbolic_trace
from .graph import Graph
from .graph_module import GraphModule, _copy_attr
from .node import Node, map_arg

__all__ = ["Match", "replace_pattern"]


class Match(NamedTuple):
    """A place where a pattern is: its last node, and the node for each of the pattern's."""

    anchor: Node
    nodes_map: dict[Node, Node]


def _graph_of(part: Any) -> Graph:
    if isinstance(part, Graph):
        return part
    return part.graph if isinstance(part, GraphModule) else symbolic_trace(part).graph


def _same(a: Any, b: Any, found: dict[Node, Any]) -> bool:
    """Whether an argument of a pattern fits one of a graph; `found` gets the nodes."""
    if isinstance(a, Node):
        if a in found:
            return found[a] is b or (not isinstance(b, Node) and found[a] == b)
        if a.op == "placeholder":
            found[a] = b
            return True
        return isinstance(b, Node) and _fits(a, b, found)
    if isinstance(a, (tuple, list)):
        return (
            isinstance(b, (tuple, list))
            and len(a) == len(b)
            and all(_same(x, y, found) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, dict):
        return (
            isinstance(b, dict)
            and a.keys() == b.keys()
            and all(_same(a[k], b[k], found) for k in a)
        )
    return type(a) is type(b) and bool(a == b)


def _fits(a: Node, b: Node, found: dict[Node, Any]) -> bool:
    if a.op != b.op or (a.op in ("call_function", "call_method") and a.target != b.target):
        return False
    if a.op in ("get_attr", "call_module") and str(a.target) != str(b.target):
        return False
    found[a] = b
    return _same(a.args, b.args, found) and _same(dict(a.kwargs), dict(b.kwargs), found)


def replace_pattern(
    gm: GraphModule,
    pattern: Callable[..., Any] | GraphModule,
    replacement: Callable[..., Any] | GraphModule,
) -> list[Match]:
    """Replace each part of a module's graph that is as `pattern`, without overlaps; returns the
    parts. Both are functions or modules with the same inputs."""
    shape, new = _graph_of(pattern), _graph_of(replacement)
    last = shape.output_node().args[0]
    if not isinstance(last, Node):
        raise NotImplementedError("replace_pattern: a pattern gives one value")
    inside = [n for n in shape.nodes if n.op not in ("placeholder", "output")]
    matches: list[Match] = []
    taken: set[Node] = set()
    for node in list(gm.graph.nodes):
        found: dict[Node, Any] = {}
        if node.op in ("placeholder", "output") or not _fits(last, node, found):
            continue
        parts = {found[n] for n in inside}
        leaks = any(u not in parts for p in parts - {node} for u in p.users)
        if not leaks and not parts & taken:
            taken |= parts
            matches.append(Match(node, found))
    replaced: dict[Node, Node] = {}
    for anchor, found in matches:
        values: dict[Node, Any] = {}
        inputs = [n for n in shape.nodes if n.op == "placeholder"]
        for own, theirs in zip([n for n in new.nodes if n.op == "placeholder"], inputs):
            values[own] = replaced.get(found[theirs], found[theirs])
        first = next((n for n in gm.graph.nodes if n in anchor.users), anchor)
        with gm.graph.inserting_before(first):
            result = gm.graph.graph_copy(new, values)
        result = map_arg(result, lambda n: n)
        anchor.replace_all_uses_with(result)
        replaced[anchor] = result
        for n in reversed(inside):
            gm.graph.erase_node(found[n])
    if isinstance(replacement, Module):
        for node in new.nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, str(node.target))
    gm.recompile()
    return matches
