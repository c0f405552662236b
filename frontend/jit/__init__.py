"""torch.jit: scripted and traced programs, which are saved with their source or graph.

Nothing is compiled ahead here: calls are recorded while Python runs, and their kernels are fused
anyway. So a scripted program is run by Python, with all branches, those that depend on values too;
a traced one is the graph of the calls that it made once.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from tilewright.ir.location import at_user_line

from ..futures import Future
from ..fx.concrete import TracerWarning, is_watching
from ..nn import Module
from . import archive, loading
from .annotations import fits
from .freezing import freeze, optimize_for_inference, run_frozen_optimizations
from .graphs import trace_graph as _get_trace_graph  # noqa: F401  (by this name it is asked for)
from .modes import export, ignore, is_scripting, unused
from .scripting import (
    Error,
    RecursiveScriptModule,
    ScriptFunction,
    ScriptModule,
    script,
    script_method,
    scripted,
)
from .tracing import trace, trace_module

F = TypeVar("F")
T = TypeVar("T")

__all__ = [
    "Attribute",
    "Error",
    "Final",
    "Future",
    "RecursiveScriptModule",
    "ScriptFunction",
    "ScriptModule",
    "TracerWarning",
    "annotate",
    "enable_onednn_fusion",
    "export",
    "fork",
    "freeze",
    "fuser",
    "ignore",
    "interface",
    "is_scripting",
    "is_tracing",
    "isinstance",
    "load",
    "onednn_fusion_enabled",
    "optimize_for_inference",
    "optimized_execution",
    "run_frozen_optimizations",
    "save",
    "script",
    "script_if_tracing",
    "script_method",
    "set_fusion_strategy",
    "strict_fusion",
    "trace",
    "trace_module",
    "unused",
    "wait",
]


def script_if_tracing(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that traces keep whole, with its branches, as a scripted one."""
    whole = ScriptFunction(fn)

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (whole if is_tracing() else fn)(*args, **kwargs)

    return call


_script_if_tracing = script_if_tracing


def interface(obj: F) -> F:
    return obj


def _overload(fn: F) -> F:
    return fn


def _overload_method(fn: F) -> F:
    return fn


def is_tracing() -> bool:
    """Whether torch.jit.trace, or torch.export, watches calls now."""
    return is_watching()


def annotate(the_type: Any, the_value: T) -> T:
    return the_value


class Attribute:
    """A value with its type, for scripting: the value itself."""

    def __new__(cls, value: Any, type: Any) -> Any:
        return value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Whether `obj` is of a class, or of a container type such as List[int]."""
    return fits(obj, target_type)


def fork(func: Callable[..., T], *args: Any, **kwargs: Any) -> Future[T]:
    """The future of a call, which is made at once."""
    out: Future[T] = Future()
    out.set_result(func(*args, **kwargs))
    return out


def wait(future: Future[T]) -> T:
    return future.wait()


def save(m: Any, f: Any, _extra_files: dict[str, Any] | None = None) -> None:
    """Write a scripted or traced program to a path or a binary file.

    The file has the source of what runs, and all values: it loads where the classes of the program
    aren't. torch.load reads the state_dict in it, PyTorch's torch.load too. RuntimeError if the
    program holds what has no source, or can't be pickled. _extra_files: more records, by name.
    """
    if not builtins.isinstance(m, (ScriptModule, ScriptFunction)):
        raise RuntimeError(
            "torch.jit.save: expected what torch.jit.script or torch.jit.trace gave, got "
            f"{type(m).__name__}{at_user_line()}"
        )
    archive.save(m, f, _extra_files)


def load(
    f: Any,
    map_location: Any = None,
    _extra_files: dict[str, Any] | None = None,
    _restore_shapes: bool = False,
) -> Any:
    """The program in a file of `save`, or the weights of one of PyTorch's TorchScript.

    A program of `save` runs its source, so load only files from sources that you trust. An archive
    of TorchScript gives a module with its parameters, buffers and attributes, whose call is an
    error: its state_dict can be loaded into a model.
    """
    found = loading.load(f, map_location, _extra_files)
    if builtins.isinstance(found, Module) and not builtins.isinstance(found, ScriptModule):
        return scripted(found, {})
    return found


def set_fusion_strategy(strategy: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """What is fused follows from the graph alone. Returns the strategy."""
    return strategy


def enable_onednn_fusion(enabled: bool) -> None:
    """There is no oneDNN here."""


def onednn_fusion_enabled() -> bool:
    return False


@contextmanager
def fuser(name: str) -> Any:
    """There is one fuser."""
    yield


@contextmanager
def optimized_execution(should_optimize: bool) -> Any:
    """Nothing is compiled here ahead of its run."""
    yield


class strict_fusion:
    """A block whose calls PyTorch would fuse or refuse; here they are fused anyway."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: object) -> None:
        pass
