"""torch._dynamo.testing: backends that keep what they were given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .backends.registry import lookup_backend

__all__ = ["CompileCounter", "CompileCounterWithBackend", "EagerAndRecordGraphs"]


class CompileCounter:
    """Counts graphs (frame_count) and their calls (op_count), and runs them as they are."""

    def __init__(self) -> None:
        self.frame_count = self.op_count = 0

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        self.frame_count += 1
        self.op_count += sum("call" in node.op for node in gm.graph.nodes)
        forward: Callable[..., Any] = gm.forward
        return forward

    def clear(self) -> None:
        """Count from zero."""
        self.frame_count = self.op_count = 0


class EagerAndRecordGraphs:
    """Keeps the graph modules in `graphs`, and runs them as they are."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        self.graphs.append(gm)
        forward: Callable[..., Any] = gm.forward
        return forward


class CompileCounterWithBackend(CompileCounter):
    """Counts and keeps the graphs, and hands them on to the backend of a name."""

    def __init__(self, backend: str):
        super().__init__()
        self.backend, self.graphs = backend, list[Any]()

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        super().__call__(gm, example_inputs)
        self.graphs.append(gm)
        compiled: Callable[..., Any] = lookup_backend(self.backend)(gm, example_inputs)
        return compiled

    def clear(self) -> None:
        super().clear()
        self.graphs = []
