"""torch.jit: the decorators of TorchScript, which give the function back as it is.

Nothing is compiled ahead here: calls are recorded while Python runs, and their kernels are fused
anyway. So a scripted function is the function, with all its branches. Archives of TorchScript can't
be read or written.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import contextmanager
from typing import Any, Final, NoReturn, TypeVar

from tilewright.ir.location import at_user_line

from ..futures import Future
from ..nn import Module
from .annotations import fits

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


class Error(RuntimeError):
    """An error of a scripted function; none is raised here."""


class TracerWarning(Warning):
    """A warning of tracing; none is given here."""


class ScriptModule(Module):
    """A module; PyTorch's base class of modules that are written for scripting."""


class RecursiveScriptModule(ScriptModule):
    """PyTorch's class of a scripted module. `script` gives the module itself, so none is made."""


class ScriptFunction:
    """PyTorch's class of a scripted function. None is made: `script` gives the function."""

    def __init__(self, *args: Any, **options: Any):
        raise RuntimeError("torch.jit.ScriptFunction can't be made: script gives the function")


def script(obj: F, *args: Any, **options: Any) -> F:
    """The function, module or class itself."""
    return obj


def trace(func: F, example_inputs: Any = None, *args: Any, **options: Any) -> F:
    """The function or module itself: unlike PyTorch's, it keeps branches that depend on values."""
    return func


def trace_module(mod: F, inputs: Any, *args: Any, **options: Any) -> F:
    """The module itself."""
    return mod


def freeze(mod: F, *args: Any, **options: Any) -> F:
    """The module itself, which must be in evaluation mode."""
    if getattr(mod, "training", False):
        raise RuntimeError("Freezing is currently only implemented for modules in eval mode")
    return mod


def optimize_for_inference(mod: F, other_methods: Any = None) -> F:
    """The module itself."""
    return mod


def script_method(fn: F) -> F:
    return fn


def script_if_tracing(fn: F) -> F:
    return fn


_script_if_tracing = script_if_tracing


def export(fn: F) -> F:
    return fn


def unused(fn: F) -> F:
    return fn


def interface(obj: F) -> F:
    return obj


def ignore(drop: Any = False, **options: Any) -> Any:
    """A decorator, with or without arguments, that gives the function back."""
    return drop if callable(drop) else lambda fn: fn


def _overload(fn: F) -> F:
    return fn


def _overload_method(fn: F) -> F:
    return fn


def is_scripting() -> bool:
    """False: Python runs."""
    return False


def is_tracing() -> bool:
    """False: Python runs."""
    return False


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


def _refuse(name: str) -> NoReturn:
    raise RuntimeError(
        f"torch.jit.{name}: archives of TorchScript hold compiled programs, which tilewright can't "
        "read or write. Keep the model's code, and torch.save(model.state_dict()), or export to "
        f"ONNX{at_user_line()}"
    )


def save(m: Any, f: Any, *args: Any, **options: Any) -> NoReturn:
    _refuse("save")


def load(f: Any, *args: Any, **options: Any) -> NoReturn:
    _refuse("load")


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
