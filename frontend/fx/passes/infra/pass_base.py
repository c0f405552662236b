"""The base of passes over graph modules."""

from __future__ import annotations

from typing import NamedTuple

from ...graph_module import GraphModule

__all__ = ["PassBase", "PassResult"]


class PassResult(NamedTuple):
    """A module, and whether the pass changed it."""

    graph_module: GraphModule
    modified: bool


class PassBase:
    """A pass: `call` does it, between `requires` and `ensures`."""

    def __call__(self, graph_module: GraphModule) -> PassResult | None:
        self.requires(graph_module)
        result = self.call(graph_module)
        self.ensures(graph_module)
        return result

    def call(self, graph_module: GraphModule) -> PassResult | None:
        raise NotImplementedError("a pass defines call(graph_module)")

    def requires(self, graph_module: GraphModule) -> None:
        """Check what the pass takes for granted."""

    def ensures(self, graph_module: GraphModule) -> None:
        """Check what the pass promises."""
