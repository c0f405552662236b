"""torch.fx.experimental.proxy_tensor: graphs of what functions call for example inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...nn import Module
from ..concrete import Watcher
from ..graph_module import GraphModule

__all__ = ["get_proxy_mode", "is_traceable", "make_fx"]


def get_proxy_mode() -> None:
    """None: no tensors are proxies."""


def is_traceable(value: Any) -> bool:
    return False


def make_fx(
    f: Callable[..., Any],
    decomposition_table: dict[Any, Any] | None = None,
    tracing_mode: str = "real",
    **options: Any,
) -> Callable[..., GraphModule]:
    """A function of example inputs, which gives the graph module of what f calls for them.

    Its nodes are calls of torch's public functions and methods, where PyTorch has operators of
    ATen. The tensors that f holds become constants. tracing_mode: "real"; sizes are asked of the
    tensors in any mode.
    """
    if tracing_mode not in ("real", "fake", "symbolic"):
        raise ValueError(f"Unexpected tracing type: {tracing_mode}")
    if decomposition_table:
        raise NotImplementedError(
            "make_fx(decomposition_table=...): the graph has torch's functions, not operators; use "
            "torch.export's ExportedProgram.run_decompositions"
        )

    def trace(*args: Any) -> GraphModule:
        root = Module()
        watch = Watcher(root, holders=f if isinstance(f, Module) else None)
        watch.trace(f, args, {})
        return GraphModule(root, watch.graph, getattr(f, "__name__", "GraphModule"))

    return trace
