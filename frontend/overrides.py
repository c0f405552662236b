"""torch.overrides: objects and modes that decide what functions of torch give.

`overriding.py` has the protocol; here are PyTorch's names for it.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from types import FunctionType
from typing import Any, TypeVar

from . import overriding
from ._tensor import Tensor
from .overriding import has_override, names, state
from .recording import Handle

__all__ = [
    "BaseTorchFunctionMode",
    "TorchFunctionMode",
    "enable_reentrant_dispatch",
    "get_default_nowrap_functions",
    "get_ignored_functions",
    "get_overridable_functions",
    "get_testing_overrides",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "redispatch_function",
    "resolve_name",
    "wrap_torch_function",
]

F = TypeVar("F", bound=Callable[..., Any])


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether a mode is on, or one of the arguments is of a class with a `__torch_function__`."""
    if state.skips:
        state.skips = False
        return False
    return bool(state.modes) or (state.classes and any(map(has_override, relevant_args)))


def has_torch_function_unary(arg: Any) -> bool:
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Ask the mode, then each class with a `__torch_function__`, subclasses first, what the call
    gives. TypeError if all return NotImplemented."""
    return overriding.ask(public_api, overriding.overriding(relevant_args), args, kwargs)


def wrap_torch_function(
    dispatcher: Callable[..., Iterable[Any]],
) -> Callable[[F], F]:
    """A decorator: the function asks the arguments that `dispatcher` picks of its arguments."""

    def inner(func: F) -> F:
        @functools.wraps(func)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = tuple(dispatcher(*args, **kwargs))
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return func(*args, **kwargs)

        return wrapped  # type: ignore[return-value]

    return inner


def is_tensor_like(inp: Any) -> bool:
    """Whether it is a tensor, or of a class with a `__torch_function__`."""
    return isinstance(inp, Handle) or hasattr(type(inp), "__torch_function__")


def is_tensor_method_or_property(func: Callable[..., Any]) -> bool:
    own = getattr(Tensor, getattr(func, "__name__", ""), None)
    return own is func or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a public function, such as `torch.add`; None for any other."""
    found = names().get(f)
    name, module = getattr(f, "__name__", None), getattr(f, "__module__", None)
    if found is not None or not name or not module:
        return found
    return f"{module}.{name}".replace("tilewright", "torch", 1)


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """The functions whose results the default `__torch_function__` doesn't wrap."""
    return overriding.unwrapped()


def _method(name: str) -> Callable[..., Any] | None:
    """The method of a name, if it asks."""
    own = vars(Tensor)[name]
    asks = not name.startswith("_") and name not in overriding.SILENT
    return own if isinstance(own, FunctionType) and asks else None


@functools.cache
def get_overridable_functions() -> dict[Any, list[Callable[..., Any]]]:
    """The functions that ask, by the module or class that they are of."""
    found: dict[Any, list[Callable[..., Any]]] = {}
    for full, function in overriding.public_functions():
        home = full.rpartition(".")[0].replace("torch", __package__, 1)
        found.setdefault(importlib.import_module(home), []).append(function)
    properties = [f for f, name in names().items() if name.endswith("__get__")]
    found[Tensor] = [*filter(None, map(_method, vars(Tensor))), *properties]
    return found


@functools.cache
def get_testing_overrides() -> dict[Callable[..., Any], Callable[..., Any]]:
    """For each function that asks a function of its arguments that returns -1, for tests."""

    def dummy(function: Any) -> Callable[..., Any]:
        def answer(*args: Any, **kwargs: Any) -> int:
            return -1

        answer.__wrapped__ = function  # type: ignore[attr-defined]  # its signature
        return answer

    return {f: dummy(f) for functions in get_overridable_functions().values() for f in functions}


@functools.cache
def get_ignored_functions() -> set[Callable[..., Any]]:
    """The public functions of torch that ask no class."""
    top = importlib.import_module(__package__)
    asked = {f for functions in get_overridable_functions().values() for f in functions}
    public = {getattr(top, name) for name in top.__all__ if callable(getattr(top, name))}
    return (
        {each for each in public - asked if not isinstance(each, type)}
        | {f for f in asked if f.__name__ in overriding.MAKERS}
        | {vars(Tensor)[name] for name in overriding.SILENT if name in vars(Tensor)}
    )


@contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    """A block like any other: nothing bars a handler from calling functions that ask."""
    yield


class TorchFunctionMode:
    """A block in which a method sees each call of a public function, and decides what it gives.

        class Log(TorchFunctionMode):
            def __torch_function__(self, func, types, args=(), kwargs=None):
                print(func.__name__)
                return func(*args, **(kwargs or {}))

    Inside the method the mode is off. Modes nest; the innermost is asked first.
    """

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} has no __torch_function__")

    def __enter__(self) -> Any:
        overriding.watch()
        state.modes = [*state.modes, self]
        return self

    def __exit__(self, *exc: object) -> None:
        state.modes = state.modes[:-1]

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        """The mode, to be entered; deprecated."""
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that calls what it sees."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    return state.modes[-1] if state.modes else None


def _get_current_function_mode_stack() -> list[Any]:
    return list(state.modes)


def redispatch_function(
    func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
) -> Any:
    """Call a function without asking who has a say in it. The functions that it calls do ask."""
    state.skips = True
    try:
        return func(*args, **(kwargs or {}))
    finally:
        state.skips = False
