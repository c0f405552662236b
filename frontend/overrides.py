"""torch.overrides: objects that have a say in what functions of torch do with them.

A library's own functions ask here. tilewright's operators call no `__torch_function__`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from .recording import Handle

__all__ = [
    "get_default_nowrap_functions",
    "handle_torch_function",
    "has_torch_function",
    "has_torch_function_unary",
    "has_torch_function_variadic",
    "is_tensor_like",
    "is_tensor_method_or_property",
    "resolve_name",
    "wrap_torch_function",
]

F = TypeVar("F", bound=Callable[..., Any])


def _overrides(value: Any) -> bool:
    own = getattr(type(value), "__torch_function__", None)
    return own is not None and own is not _disabled_torch_function_impl


def _disabled_torch_function_impl(
    func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
) -> Any:
    """The `__torch_function__` of a class that wants none."""
    return func(*args, **(kwargs or {}))


def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments is of a class with a `__torch_function__`."""
    return any(map(_overrides, relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    return _overrides(arg)


def has_torch_function_variadic(*args: Any) -> bool:
    return any(map(_overrides, args))


def handle_torch_function(
    public_api: Callable[..., Any], relevant_args: Iterable[Any], *args: Any, **kwargs: Any
) -> Any:
    """Ask each class with a `__torch_function__`, subclasses first, what the call gives."""
    found: list[Any] = []
    for arg in relevant_args:
        if not _overrides(arg) or any(type(arg) is type(other) for other in found):
            continue
        places = [i for i, other in enumerate(found) if issubclass(type(arg), type(other))]
        found.insert(places[0] if places else len(found), arg)
    types = tuple(map(type, found))
    for arg in found:
        result = type(arg).__torch_function__(public_api, types, args, kwargs)
        if result is not NotImplemented:
            return result
    name = f"{public_api.__module__}.{public_api.__name__}"
    raise TypeError(
        f"no implementation found for '{name}' on types that implement __torch_function__: "
        f"{list(types)}"
    )


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
    from ._tensor import Tensor

    own = getattr(Tensor, getattr(func, "__name__", ""), None)
    return own is func or getattr(func, "__name__", None) == "__get__"


def resolve_name(f: Callable[..., Any]) -> str | None:
    """The name of a public function, such as `torch.add`; None for any other."""
    name = getattr(f, "__name__", None)
    module = getattr(f, "__module__", None)
    return f"{module}.{name}".replace("tilewright", "torch", 1) if name and module else None


def get_default_nowrap_functions() -> set[Callable[..., Any]]:
    """None: no result is wrapped."""
    return set()


class TorchFunctionMode:
    """Refused: operators ask no mode what they give."""

    def __enter__(self) -> TorchFunctionMode:
        raise NotImplementedError(
            f"{type(self).__name__}: tilewright's operators don't call __torch_function__"
        )

    def __exit__(self, *exc: object) -> None:
        pass

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[Any], args: Any = (), kwargs: Any = None
    ) -> Any:
        raise NotImplementedError
