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

__all__ = ["Match", "ReplacedPatterns", "replace_pattern", "replace_pattern_with_filters"]


@dataclass
class ReplacedPatterns:
    """A place where a pattern was, as in Match, and the nodes that took its place."""

    anchor: Node
    nodes_map: dict[Node, Node]
    replacements: list[Node]


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
    return [Match(r.anchor, r.nodes_map) for r in _replaced(gm, pattern, replacement, None)]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Any,
    replacement: Any = None,
    match_filters: list[Callable[[Match, Graph, Graph], bool]] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[Match, Graph, Graph], Any] | None = None,
) -> list[ReplacedPatterns]:
    """As replace_pattern, where all of match_filters(match, graph, pattern) are true.

    replacement_callback: gives the replacement of a match, in the place of `replacement`.
    """
    if ignore_literals:
        raise NotImplementedError("replace_pattern_with_filters(ignore_literals=True)")
    return _replaced(gm, pattern, replacement, match_filters, replacement_callback)


def _replaced(
    gm: GraphModule,
    pattern: Any,
    replacement: Any,
    filters: Any,
    callback: Any = None,
) -> list[ReplacedPatterns]:
    shape = _graph_of(pattern)
    fixed = None if callback is not None else _graph_of(replacement)
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
        fits = all(f(Match(node, found), gm.graph, shape) for f in filters or ())
        if not leaks and not parts & taken and fits:
            taken |= parts
            matches.append(Match(node, found))
    replaced: dict[Node, Node] = {}
    done: list[ReplacedPatterns] = []
    for anchor, found in matches:
        made = callback(Match(anchor, found), gm.graph, shape) if fixed is None else None
        new = _graph_of(made) if fixed is None else fixed
        before = set(gm.graph.nodes)
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
        added = [n for n in gm.graph.nodes if n not in before]
        done.append(ReplacedPatterns(anchor, found, added))
        for n in reversed(inside):
            gm.graph.erase_node(found[n])
    if isinstance(replacement, Module):
        for node in _graph_of(replacement).nodes:
            if node.op in ("get_attr", "call_module"):
                _copy_attr(replacement, gm, str(node.target))
    gm.recompile()
    return done
