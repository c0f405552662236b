"""torch.fx._symbolic_trace: tracing by PyTorch's path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..nn import Module
from .graph_module import GraphModule
from .tracing import PH, Tracer, is_fx_symbolic_tracing, is_fx_tracing, wrap

__all__ = ["PH", "Tracer", "is_fx_symbolic_tracing", "is_fx_tracing", "symbolic_trace", "wrap"]


def symbolic_trace(
    root: Module | Callable[..., Any], concrete_args: dict[str, Any] | None = None
) -> GraphModule:
    """A GraphModule that computes what a module or function does, for any inputs.

    concrete_args: values for arguments that are no inputs, by name.
    Raises TraceError where the program's course depends on a value.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
