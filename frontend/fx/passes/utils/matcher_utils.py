"""Places in a graph that are as a pattern."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ...graph import Graph
from ...node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """A place where a pattern is.

    anchors: the nodes of the pattern at which the search began. nodes_map: the graph's node (or
    literal) for each of the pattern's. placeholder_nodes, returning_nodes: what the graph has in
    the place of the pattern's inputs and results. name_node_map: the graph's nodes by the names of
    a pattern that returns a dict of them behind its result.
    """

    anchors: list[Node]
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    placeholder_nodes: list[Any] = field(default_factory=list)
    returning_nodes: list[Node] = field(default_factory=list)
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds the places in graphs that are as `pattern`.

    match_output: whether the graph returns there what the pattern does. match_placeholder: whether
    the pattern's inputs stand for inputs alone. remove_overlapping_matches: whether a node belongs
    to one place at most. ignore_literals: whether numbers and the like may differ.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ):
        self.pattern = pattern
        self.match_output, self.match_placeholder = match_output, match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        output = pattern.output_node()
        self.pattern_placeholder_nodes = [n for n in pattern.nodes if n.op == "placeholder"]
        self.pattern_returning_nodes = list(output.all_input_nodes)
        ends = [n for n in output.all_input_nodes if len(n.users) == 1]
        self.pattern_anchors = [output] if match_output else ends
        names = output.args[0][-1] if isinstance(output.args[0], (tuple, list)) else None
        self._names: dict[str, Any] = dict(names) if isinstance(names, dict) else {}
        inside = [n for n in pattern.nodes if n.op not in ("placeholder", "output")]
        if not inside or not self.pattern_anchors:
            raise ValueError(
                "SubgraphMatcher: the pattern has no node that computes one of its results"
            )
        self._inside = inside

    def match(self, graph: Graph) -> list[InternalMatch]:
        """The places, in the order of the graph."""
        nodes = list(graph.nodes)
        found = [InternalMatch(list(self.pattern_anchors))]
        for anchor in self.pattern_anchors:
            longer = []
            for each in found:
                for node in nodes:
                    made = InternalMatch(each.anchors, dict(each.nodes_map))
                    if self._fits(anchor, node, made.nodes_map):
                        longer.append(made)
            found = longer
        complete = [m for m in found if self._is_whole(m.nodes_map)]
        for m in complete:
            m.placeholder_nodes = [m.nodes_map.get(n) for n in self.pattern_placeholder_nodes]
            m.returning_nodes = [m.nodes_map[n] for n in self.pattern_returning_nodes]
            m.name_node_map = {
                name: m.nodes_map[n] for name, n in self._names.items() if isinstance(n, Node)
            }
        return self._apart(complete) if self.remove_overlapping_matches else complete

    def _is_whole(self, found: dict[Node, Any]) -> bool:
        """Whether all of the pattern is there, and nothing outside reads what it doesn't return."""
        if any(n not in found for n in self._inside):
            return False
        parts = {found[n] for n in self._inside}
        if self.match_output:
            parts.add(found[self.pattern.output_node()])
        if len({found[n] for n in self._inside}) < len(self._inside):
            return False  # one node can't stand for two
        hidden = (n for n in self._inside if n not in self.pattern_returning_nodes)
        return all(u in parts for n in hidden for u in found[n].users)

    def _apart(self, matches: list[InternalMatch]) -> list[InternalMatch]:
        taken: set[Node] = set()
        kept = []
        for m in matches:
            parts = {m.nodes_map[n] for n in self._inside}
            if not parts & taken:
                taken |= parts
                kept.append(m)
        return kept

    def _fits(self, a: Node, b: Node, found: dict[Node, Any]) -> bool:
        """Whether node `b` of the graph is as node `a` of the pattern; `found` gets the nodes."""
        if a in found:
            return bool(found[a] is b)
        if a.op == "placeholder":
            if self.match_placeholder and b.op != "placeholder":
                return False
            found[a] = b
            return True
        if a.op != b.op:
            return False
        if a.op in ("call_function", "call_method") and a.target != b.target:
            return False
        if a.op in ("get_attr", "call_module") and str(a.target) != str(b.target):
            return False
        found[a] = b
        if not self._same(a.args, b.args, found):
            return False
        return self._same(dict(a.kwargs), dict(b.kwargs), found)

    def _same(self, a: Any, b: Any, found: dict[Node, Any]) -> bool:
        """Whether an argument of a pattern fits one of a graph."""
        if isinstance(a, Node):
            if isinstance(b, Node):
                return self._fits(a, b, found)
            if a in found:
                return not isinstance(found[a], Node) and bool(found[a] == b)
            if a.op != "placeholder" or self.match_placeholder:
                return False
            found[a] = b
            return True
        if isinstance(a, (tuple, list)):
            return (
                isinstance(b, (tuple, list))
                and len(a) == len(b)
                and all(self._same(x, y, found) for x, y in zip(a, b, strict=True))
            )
        if isinstance(a, dict):
            return (
                isinstance(b, dict)
                and a.keys() == b.keys()
                and all(self._same(a[k], b[k], found) for k in a)
            )
        if isinstance(b, Node):
            return False
        return self.ignore_literals or (type(a) is type(b) and bool(a == b))
