"""Whether a scripted program runs, and the marks that decorators leave on its functions."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tilewright.ir.location import at_user_line

F = TypeVar("F")

MARK = "_torchscript_modifier"
UNUSED, IGNORED, EXPORTED = "unused", "ignore", "export"

_state = threading.local()


def is_scripting() -> bool:
    """Whether a scripted function or module runs."""
    return getattr(_state, "scripting", False)


@contextmanager
def scripting(on: bool) -> Iterator[None]:
    before = is_scripting()
    _state.scripting = on
    try:
        yield
    finally:
        _state.scripting = before


def mark_of(function: Any) -> str | None:
    """The mark of a function, method or property."""
    function = function.fget if isinstance(function, property) else function
    return getattr(getattr(function, "__func__", function), MARK, None)


def export(fn: F) -> F:
    """Keep a method in the scripted module, though forward doesn't call it."""
    setattr(fn, MARK, EXPORTED)
    return fn


def unused(fn: F) -> F:
    """Leave a function out of scripted programs: there a call of it is an error."""

    def refuse(name: str) -> None:
        if is_scripting():
            raise RuntimeError(
                f"{name} is marked @torch.jit.unused, and a scripted program calls it"
                f"{at_user_line()}"
            )

    return _marked(fn, UNUSED, refuse)


def ignore(drop: Any = False, **options: Any) -> Any:
    """Leave a function as Python: scripted programs call it, but can't be saved with it.

    drop: whether a call of it in a scripted program is an error, as with `unused`.
    """
    if callable(drop) or isinstance(drop, property):
        return _marked(drop, IGNORED, lambda name: None)
    if not isinstance(drop, bool):
        raise RuntimeError(
            f"Argument to @torch.jit.ignore must be a bool or a function but got {drop}"
        )
    return unused if drop else ignore


def _marked(fn: Any, mark: str, check: Callable[[str], None]) -> Any:
    if isinstance(fn, property):
        getter = _marked(fn.fget, mark, check)
        return property(getter, fn.fset, fn.fdel, fn.__doc__)
    if isinstance(fn, type):
        setattr(fn, MARK, mark)
        return fn

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        check(getattr(fn, "__qualname__", str(fn)))
        if not is_scripting():
            return fn(*args, **kwargs)
        with scripting(False):
            return fn(*args, **kwargs)

    setattr(call, MARK, mark)
    return call
