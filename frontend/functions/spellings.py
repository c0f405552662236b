"""Other spellings of calls that PyTorch takes: NumPy's names of arguments, and older orders."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tilewright.ir.location import warn

from ..recording import Handle

F = TypeVar("F", bound=Callable[..., Any])

NUMPYS = {
    "axis": "dim",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
}
"""NumPy's names of arguments, and PyTorch's."""


@functools.cache
def _names_of(function: Callable[..., Any]) -> frozenset[str]:
    return frozenset(inspect.signature(function).parameters)


def renamed(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """The named arguments of a call, by the names that the function has for them."""
    known = _names_of(function)
    found = {}
    for name, value in options.items():
        own = NUMPYS.get(name, name)
        own = "dims" if own == "dim" and "dim" not in known and "dims" in known else own
        own = own if own in known and name not in known else name
        if own in found:
            raise TypeError(f"{function.__name__}() got {own!r} twice, once as {name!r}")
        found[own] = value
    return found


def operands(
    name: str, given: dict[str, Any], options: dict[str, Any], second: str = "other"
) -> list[Any]:
    """The operands of a function, of which some were given by NumPy's names. second: another name
    of `other`."""
    found = dict(given)
    for key, value in options.items():
        own = "other" if key == second else NUMPYS.get(key)
        if own not in found or found[own] is not None:
            raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
        found[own] = value
    return list(found.values())


def by_numpys_names(function: F) -> F:
    """The function, which takes NumPy's names of its arguments too."""

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        if options and not _names_of(function).issuperset(options):
            options = renamed(function, options)
        return function(*args, **options)

    return call  # type: ignore[return-value]


def also_named(**names: str) -> Callable[[F], F]:
    """Let a function take further names of its arguments: those of PyTorch's other forms of it.

    names: further name -> the function's own.
    """

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            for name in names.keys() & options.keys():
                if names[name] in options:
                    raise TypeError(
                        f"{function.__name__}() got {names[name]!r} twice, once as {name!r}"
                    )
                options[names[name]] = options.pop(name)
            return function(*args, **options)

        return call  # type: ignore[return-value]

    return decorate


def in_older_order(
    function: Callable[..., Any], given: Sequence[Any], names: Sequence[str], **options: Any
) -> Any:
    """Call a function in whose arguments numbers stand between tensors, as in add(x, 2, y).

    given: all arguments by place. names: the options that the numbers are, in their order.
    """
    tensors = [each for each in given if isinstance(each, Handle)]
    numbers = [each for each in given if not isinstance(each, Handle)]
    named = dict(zip(names, numbers))
    name = function.__name__
    if len(numbers) > len(names):
        raise TypeError(f"{name}() takes {len(tensors)} tensors by place, got {len(given)} values")
    warn(  # without the numbers: one warning for each line, whatever they are
        f"This overload of {name} is deprecated: write the numbers as options, {name}(…, "
        + ", ".join(f"{key}=…" for key in named)
        + ")"
    )
    return function(*tensors, **{**options, **named})
