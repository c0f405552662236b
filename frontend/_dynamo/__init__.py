"""torch._dynamo: the names that packages use. The compiler is in torch.compiler."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, TypeVar

from ..compiler import compile, disable, is_compiling, reset, set_stance, substitute_in_graph
from ..nn.optimized import OptimizedModule
from ..replay.compiled import around
from ..settings import compiling as config
from . import backends as backends
from . import eval_frame as eval_frame
from . import exc as exc
from . import testing as testing
from .backends.registry import list_backends, lookup_backend, register_backend
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
    "explain",
    "forbid_in_graph",
    "graph_break",
    "is_compiling",
    "is_dynamo_supported",
    "list_backends",
    "lookup_backend",
    "mark_dynamic",
    "mark_static",
    "mark_static_address",
    "maybe_mark_dynamic",
    "optimize",
    "optimize_assert",
    "register_backend",
    "reset",
    "set_stance",
    "substitute_in_graph",
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
    """End the graph that a backend of the program's own gets, here. Other compiled functions have
    none."""
    if around and around[-1].depth == 0:
        around[-1].end(f"torch._dynamo.graph_break({msg})")


def explain(f: Callable[..., Any], *extra_args: Any, **extra_kwargs: Any) -> Any:
    """What graphs a call has, and why it isn't one: a function of its arguments, which gives an
    ExplainOutput. With further arguments it is called at once, as once in PyTorch."""
    explained = importlib.import_module("..graphing.explaining", __package__).explained
    found = functools.partial(explained, f)
    return found(*extra_args, **extra_kwargs) if extra_args or extra_kwargs else found


def optimize(
    backend: str | Callable[..., Any] = "inductor", *, nopython: bool = False, **options: Any
) -> Callable[[Any], Any]:
    """A decorator: `torch.compile` with a backend. nopython: `fullgraph` there."""
    return lambda model: compile(model, backend=backend, fullgraph=nopython)


def optimize_assert(backend: str | Callable[..., Any], **options: Any) -> Callable[[Any], Any]:
    """A decorator: `torch.compile` with a backend and `fullgraph=True`."""
    return optimize(backend, nopython=True)


def mark_dynamic(t: Any, index: Any, **options: Any) -> None:
    """Kernels fit all sizes."""


maybe_mark_dynamic = mark_dynamic


def mark_static(t: Any, index: Any = None) -> None:
    """Kernels fit all sizes."""


def mark_static_address(t: Any, guard: bool = True) -> None:
    """Plans find their memory at each run."""
