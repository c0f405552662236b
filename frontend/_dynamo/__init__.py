"""torch._dynamo: the names that packages use. The compiler is in torch.compiler."""

from __future__ import annotations

from typing import Any, TypeVar

from ..compiler import disable, is_compiling, reset
from ..nn.optimized import OptimizedModule
from ..settings import compiling as config
from . import eval_frame as eval_frame
from . import exc as exc
from .eval_frame import is_dynamo_supported

__all__ = [
    "OptimizedModule",
    "allow_in_graph",
    "assume_constant_result",
    "config",
    "disable",
    "disallow_in_graph",
    "eval_frame",
    "exc",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "reset",
]

F = TypeVar("F")


def allow_in_graph(fn: F) -> F:
    return fn


def disallow_in_graph(fn: F) -> F:
    return fn


def forbid_in_graph(fn: F) -> F:
    return fn


def assume_constant_result(fn: F) -> F:
    return fn


def graph_break(msg: str = "") -> None:
    """A compiled function is Python: there is nothing to break."""


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Kernels fit all sizes."""


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Kernels fit all sizes."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Plans find their memory at each run."""
