"""Which modules a source imports, and the graph of the modules of an archive."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


def find_files_source_depends_on(
    src: str, package: str | None = None
) -> list[tuple[str, str | None]]:
    """What the imports of a source name: (module, None) for `import module`, and (module, name) for
    `from module import name`. package: what relative imports begin at."""
    found: dict[tuple[str, str | None], None] = {}
    for node in ast.walk(ast.parse(src)):
        for each in _imported(node, package):
            found[each] = None
    return list(found)


def _imported(node: Any, package: str | None) -> Iterator[tuple[str, str | None]]:
    if isinstance(node, ast.Import):
        yield from ((alias.name, None) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if node.level:
            parts = (package or "").split(".")
            parts = parts[: len(parts) - node.level + 1]
            module = ".".join([*parts, module] if module else parts)
        for alias in node.names:
            yield module, None if alias.name == "*" else alias.name
    elif (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", None) == "__import__"
        and node.args
        and isinstance(node.args[0], ast.Constant)
    ):
        yield str(node.args[0].value), None


@dataclass
class Node:
    """A module of an archive, or an object that is pickled in it.

    action: what is done with it: "intern", "extern", "mock" or "deny"; None for an object.
    source: its text. is_package: whether it stands for a folder. error: why it can't be there.
    provided: whether all is known about it.
    """

    action: str | None = None
    source: str | None = None
    is_package: bool = False
    error: str | None = None
    context: str | None = None
    provided: bool = False
    is_object: bool = False


class Graph:
    """Modules by name, and which module imports which."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {}
        self.edges: dict[str, dict[str, None]] = {}

    def add(self, name: str, node: Node) -> None:
        self.nodes[name] = node

    def connect(self, source: str, target: str) -> None:
        self.edges.setdefault(source, {})[target] = None
        for name in (source, target):
            self.nodes.setdefault(name, Node())

    def predecessors(self, name: str) -> list[str]:
        return [source for source, targets in self.edges.items() if name in targets]

    def path_to(self, name: str) -> list[str]:
        """The names from one that nobody imports to this one."""
        path, seen = [name], {name}
        while True:
            before = [each for each in self.predecessors(path[0]) if each not in seen]
            if not before:
                return path
            path.insert(0, before[0])
            seen.add(before[0])

    def between(self, source: str, target: str) -> Graph:
        """The part of the graph on the paths from one name to another."""
        forward, backward = self._reach(source), set()
        pending = [target]
        while pending:
            name = pending.pop()
            if name not in backward:
                backward.add(name)
                pending += self.predecessors(name)
        part = Graph()
        for name in forward & backward:
            for each in self.edges.get(name, ()):
                if each in forward and each in backward:
                    part.connect(name, each)
        return part

    def _reach(self, name: str) -> set[str]:
        found: set[str] = set()
        pending = [name]
        while pending:
            each = pending.pop()
            if each not in found:
                found.add(each)
                pending += self.edges.get(each, ())
        return found

    def to_dot(self) -> str:
        """The graph in Graphviz's language."""
        edges = "\n".join(
            f'"{source}" -> "{target}";'
            for source, targets in self.edges.items()
            for target in targets
        )
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{edges}\n}}\n"
