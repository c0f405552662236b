"""torch.fx: its names, for packages that define tracers while they are imported.

Programs can't be traced into fx graphs here yet: `tilewright.inspection.graph_of` shows what a call
records. Every class is refused when it is made.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from tilewright.ir.location import at_user_line

from .nn import Module

F = TypeVar("F")

__all__ = [
    "Graph",
    "GraphModule",
    "Interpreter",
    "Node",
    "Proxy",
    "Tracer",
    "Transformer",
    "symbolic_trace",
    "wrap",
]


def _refuse(name: str) -> NoReturn:
    raise NotImplementedError(
        f"torch.fx.{name}: tilewright can't trace programs into fx graphs yet. "
        f"tilewright.inspection.graph_of shows what a call records{at_user_line()}"
    )


def wrap(fn_or_name: F) -> F:
    """Keep a function whole in traces. Returns it."""
    return fn_or_name


def symbolic_trace(root: Any, concrete_args: Any = None) -> NoReturn:
    _refuse("symbolic_trace")


class _Refused:
    def __init__(self, *args: Any, **options: Any):
        _refuse(type(self).__name__)


class Graph(_Refused):
    """A program as a list of calls."""


class Node(_Refused):
    """A call in a Graph."""


class Proxy(_Refused):
    """A value while a program is traced."""


class Tracer(_Refused):
    """Traces programs."""


class Interpreter(_Refused):
    """Runs a Graph call by call."""


class Transformer(Interpreter):
    """Makes a new Graph of another."""


class GraphModule(Module):
    """A module whose forward is a Graph."""

    def __init__(self, root: Any, graph: Any, class_name: str = "GraphModule"):
        _refuse("GraphModule")


def map_arg(a: Any, fn: Callable[[Any], Any]) -> Any:
    """fn of each Node in nested containers; there are no nodes, so `a` itself."""
    return a
