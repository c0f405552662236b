"""Walks over ONNX's messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def reads(node: Any) -> Iterator[str]:
    """The values that a node reads, and the nodes of its graphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from reads(inner)
