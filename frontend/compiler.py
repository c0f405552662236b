"""torch.compile, and torch.compiler: calls replayed without running their Python.

Recording, fusion and kernels need no `compile`: every program has them. `compile` saves the Python
of a function that is called again and again with arguments of the same kind: its calls on tensors
are not made again, the nodes they would record are looked up.

A call is replayed only if it would take the same way as a call that was watched:

1. Its arguments have the same *signature*: nesting, classes, Python numbers and strings by value,
   other objects by identity, tensors by shape, dtype, device, strides, whether they collect
   gradients, and which of them are the same one; grad mode and default dtype are part of it.
2. Everything else that its code can read is as it was (replay/guards.py): the functions that ran,
   globals they name, closures, attributes of modules and other objects, containers, classes, hooks,
   down to their parts. `model.eval()`, another function put into a module, a changed closure: each
   has the next call run and be watched again.
3. While watched, it did nothing but record calls on tensors. It read no value (`item`, branches on
   values, printing), called no C function whose result may change (clocks, Python's random numbers,
   files), made no tensor from host data, changed nothing of Python's, kept no tensor that it didn't
   return, and didn't go backward or end the epoch (an optimizer's step).

A replay writes again in place to parameters, buffers and arguments, and makes new random draws. The
tensors it returns are recorded ones: gradients, hooks and later calls work as usual. Where a rule
doesn't hold, the function is called as if it weren't compiled; with `fullgraph=True` that is an
error that says why. The first two calls of a signature are watched.

A backend that isn't PyTorch's own, `backend=function` or a registered name, gets fx graphs of the
calls, and its functions are called (graphing/).
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, overload

import numpy as np

from tilewright.runtime import tiers

from .replay import backends
from .replay.backends import list_backends
from .replay.compiled import Compiled, disable
from .replay.compiled import reset as _reset
from .settings import compiling as config

__all__ = [
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "cudagraph_mark_step_begin",
    "disable",
    "get_default_backend",
    "keep_tensor_guards_unsafe",
    "load_cache_artifacts",
    "nested_compile_region",
    "save_cache_artifacts",
    "set_enable_guard_collectives",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
    "wrap_numpy",
    "is_compiling",
    "is_dynamo_compiling",
    "is_exporting",
    "list_backends",
    "reset",
    "set_default_backend",
    "set_stance",
    "substitute_in_graph",
]

for _path in ("compiler", "_dynamo"):  # the same switches by both names
    sys.modules[f"{__package__}.{_path}.config"] = config

F = TypeVar("F", bound=Callable[..., Any])
_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@overload
def compile(
    model: F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
) -> F: ...


@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: Any = ...,
) -> Callable[[F], F]: ...


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """A function or module whose calls are replayed instead of run where the rules above allow it.

    fullgraph: raise a RuntimeError that says why where they don't. disable: return `model` as it
    is. backend: a function of an fx GraphModule and its example inputs, which returns a function of
    such inputs; or the name of a registered one, with `mode` and `options` as its keywords. Those
    of PyTorch's own all mean the one compiler here. The others choose among PyTorch's compilers, or
    say when they compile again; they change nothing here, where kernels fit all sizes. Without
    `model`: a decorator. InvalidBackend for a name that nobody registered.
    """
    if mode is not None and options is not None:
        raise RuntimeError(
            "Either mode or options can be specified, but both can't be specified at the same time."
        )
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of {_MODES[1:]}")
    if model is None:
        return functools.partial(
            compile,
            fullgraph=fullgraph,
            dynamic=dynamic,
            backend=backend,
            mode=mode,
            options=options,
            disable=disable,
        )
    if disable:
        return model
    if not callable(model):
        raise RuntimeError(f"torch.compile expects a callable, got {type(model).__name__}")
    tiers.expect_repeats()
    compiled = _compiled(model, fullgraph, backend or _default_backend, mode, options)
    from .nn import Module
    from .nn.optimized import OptimizedModule

    return OptimizedModule(model, compiled) if isinstance(model, Module) else compiled


def _compiled(
    model: Callable[..., Any],
    fullgraph: bool,
    backend: str | Callable[..., Any],
    mode: str | None,
    options: dict[str, Any] | None,
) -> Callable[..., Any]:
    if isinstance(backend, str):
        exc = importlib.import_module("._dynamo.exc", __package__)
        try:
            found = backends.registered(backend)
        except KeyError:
            raise exc.InvalidBackend(backend) from None
        if found is None:
            return Compiled(model, fullgraph)
        backend = found
    graphing = importlib.import_module(".graphing.graphed", __package__)
    given = {k: v for k, v in (("mode", mode), ("options", options)) if v not in (None, "default")}
    graphed: Callable[..., Any] = graphing.Graphed(model, backend, fullgraph, given)
    return graphed


def reset() -> None:
    """Forget all watched calls and all graphs of all compiled functions."""
    _reset()
    graphing = sys.modules.get(f"{__package__}.graphing.graphed")
    if graphing is not None:
        graphing.reset()


def is_compiling() -> bool:
    """False: a compiled function runs as any other."""
    return False


def is_dynamo_compiling() -> bool:
    """False: a compiled function runs as any other."""
    return False


def is_exporting() -> bool:
    """False: what is exported runs as any other."""
    return False


def allow_in_graph(fn: F) -> F:
    """The function itself: each call is recorded anyway."""
    return fn


def assume_constant_result(fn: F) -> F:
    """The function itself: a call is replayed only where its result is the same."""
    return fn


def substitute_in_graph(original_fn: Any, **options: Any) -> Callable[[F], F]:
    """A decorator that gives the function back: no code is traced that it could replace."""
    return lambda fn: fn


_default_backend: str | Callable[..., Any] = "inductor"


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Name the backend of `compile` without one; None for "inductor"."""
    global _default_backend
    _default_backend = "inductor" if backend is None else backend


def get_default_backend() -> str | Callable[..., Any]:
    return _default_backend


def cudagraph_mark_step_begin() -> None:
    """Plans own their memory: a step needs no mark."""


@contextmanager
def set_stance(stance: str = "default", **options: Any) -> Iterator[None]:
    """There is one way to call a compiled function."""
    yield


def nested_compile_region(fn: Any = None, **options: Any) -> Any:
    """The function itself, or a decorator that gives it: calls of equal parts share kernels
    anyway."""
    return (lambda f: f) if fn is None else fn


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tensors from one of NumPy's arrays."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        from .functions.from_data import as_tensor
        from .recording import Handle

        tree_map = importlib.import_module(".utils._pytree", __package__).tree_map
        given = tree_map(lambda x: x.numpy() if isinstance(x, Handle) else x, (args, kwargs))
        found = fn(*given[0], **given[1])
        return tree_map(lambda x: as_tensor(x) if isinstance(x, np.ndarray) else x, found)

    return call


def save_cache_artifacts() -> None:
    """None: kernels are kept on disk by themselves, and there is nothing else to carry along."""


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """None: there are no artifacts that another process could have saved."""


_guards_together = False


def set_enable_guard_collectives(enabled: bool) -> bool:
    """Returns what was set before. Each process decides by itself what it replays."""
    global _guards_together
    before, _guards_together = _guards_together, enabled
    return before


# What PyTorch's `guard_filter_fn` may be: for each guard whether it is kept. Here all are kept.


def skip_all_guards_unsafe(guard_entries: Any) -> list[bool]:
    """For no guard."""
    return [False for _ in guard_entries]


def skip_guard_on_globals_unsafe(guard_entries: Any) -> list[bool]:
    """For those that aren't about globals."""
    return [not entry.is_global for entry in guard_entries]


def skip_guard_on_inbuilt_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """For those that aren't about torch's own modules."""
    return [
        not entry.orig_guard.source.is_unspecialized_builtin_nn_module() for entry in guard_entries
    ]


def skip_guard_on_all_nn_modules_unsafe(guard_entries: Any) -> list[bool]:
    """For those that aren't about modules."""
    return [not entry.orig_guard.source.is_unspecialized_nn_module() for entry in guard_entries]


def keep_tensor_guards_unsafe(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """For those of tensors; of parameters, if `keep_parameters`."""
    from .nn import Parameter

    return [
        entry.guard_type == "TENSOR_MATCH"
        and (keep_parameters or not isinstance(entry.value, Parameter))
        for entry in guard_entries
    ]
