"""Other spellings of calls that PyTorch takes: NumPy's names of arguments, and older orders."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar

from tilewright.ir.location import warn

from ..recording import Handle
from .arguments import need_tensor

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

_missing: Any = object()


def also_named(**names: str) -> Callable[[F], F]:
    """Let a function take NumPy's names of its arguments, and those of PyTorch's other forms of it.

    names: further name -> the function's own.
    """

    def decorate(function: F) -> F:
        code = inspect.unwrap(function).__code__
        further = _further(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount], names)
        return _taking(function, further) if further else function

    return decorate


by_numpys_names = also_named()
"""Let a function take NumPy's names of its arguments too."""


def _further(known: Collection[str], names: Mapping[str, str]) -> dict[str, str]:
    """The further names of a function's arguments, each with the function's own."""
    further = {}
    for name in {**NUMPYS, **names}:
        own: str | None = name
        while own is not None and own not in known:
            own = names.get(own) or NUMPYS.get(own)
        if own is not None and own != name:
            further[name] = own
    return further


def _taking(function: Any, further: Mapping[str, str]) -> Any:
    """The function, which takes further names of its arguments.

    Its code is written once it has been called often: to write it takes as long as a hundred calls,
    and most functions of a program are called few times.
    """

    def again(options: dict[str, Any], given: dict[str, Any], last: Sequence[Any] = ()) -> Any:
        """The call with the options under their own names. last: arguments behind the named."""
        found = {name: value for name, value in given.items() if value is not _missing}
        for name, value in options.items():
            own = further.get(name, name)
            if own in found:
                raise TypeError(f"{function.__name__}() got {own!r} twice, once as {name!r}")
            found[own] = value
        first = [found.pop(name) for name in places] if last else ()
        return function(*first, *last, **found)

    def early(args: Sequence[Any], options: dict[str, Any]) -> Any:
        """One of the first calls, by any number of arguments."""
        if scope["calls"] >= _OFTEN:
            return written()(*args, **options)
        scope["calls"] += 1
        if options and not further.keys().isdisjoint(options):
            return written()(*args, **options)
        return function(*args, **options)

    def written() -> Any:
        """What computes a call. The function itself becomes that, unless its code isn't its own any
        more."""
        if "call" in scope:
            return scope["call"]
        parameters = inspect.signature(function).parameters
        own = set(further.values())
        places[:] = [name for name, p in parameters.items() if p.kind in _BY_PLACE]
        defaults = {name: p.default for name, p in parameters.items() if p.default is not p.empty}
        known = own & defaults.keys()
        scope.update({f"{name}_": defaults[name] for name in known})
        found: dict[str, Any] = {}
        exec(compile(_text(parameters, known), f"{__file__}:call", "exec"), scope, found)
        made = found["call"]
        defaults = {n: _missing if n in known else defaults.get(n, _missing) for n in parameters}
        made.__defaults__ = tuple([defaults[name] for name in places])
        made.__kwdefaults__ = {name: defaults[name] for name in made.__kwdefaults__ or ()}
        if call.__code__ is _first.__code__:
            call.__defaults__, call.__kwdefaults__ = made.__defaults__, made.__kwdefaults__
            call.__code__ = made.__code__
        scope["call"] = made  # last: an interrupt leaves no call without its defaults
        return made

    places: list[str] = []
    scope = {"function": function, "again": again, "missing": _missing, "early": early, "calls": 0}
    call: Any = functools.wraps(function)(FunctionType(_first.__code__, scope))
    return call


_OFTEN = 32
"""The calls from which on a function's code is written."""


def _first(*args: Any, **options: Any) -> Any:
    return early(args, options)  # type: ignore[name-defined]  # noqa: F821


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _text(parameters: Mapping[str, inspect.Parameter], known: Collection[str]) -> str:
    """The text of a call by the function's own parameters: Python takes any number of arguments
    apart in twice the time.

    known: those with a default and a further name. The call sees whether they were given.
    """
    kinds = [(name, p.kind, p.default is p.empty) for name, p in parameters.items()]
    places = [name for name, kind, _ in kinds if kind in _BY_PLACE]
    last = [f"*{name}" for name, kind, _ in kinds if kind is inspect.Parameter.VAR_POSITIONAL]
    options = [name for name, kind, _ in kinds if kind is inspect.Parameter.KEYWORD_ONLY]
    absent = [f" or {n} is missing" for n, _, need in kinds if need and n in (*places, *options)]
    star = last or ["*"] * bool(options)
    head = [*(f"{n}=None" for n in places), *star, *(f"{n}=None" for n in options), "**further"]
    named = [f"{name}={name}" for name in options]
    given = ", ".join(f"{name}={name}" for name in (*places, *options))
    anew = ", ".join(["further", f"dict({given})", *(each[1:] for each in last)])
    lines = [
        f"def call({', '.join(head)}):",
        f"    if further{''.join(absent)}: return again({anew})",
        *(f"    if {name} is missing: {name} = {name}_" for name in known),
        *(f"    if {n[1:]}: return function({', '.join([*places, n, *named])})" for n in last),
        f"    return function({', '.join([*places, *named])})",
    ]
    return "\n".join(lines)


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


def named_tensor(name: str, input: Any, options: dict[str, Any]) -> Any:
    """The only operand of a function, a tensor, which may be given by one of NumPy's names."""
    if options:
        (input,) = operands(name, {"input": input}, options)
    if not isinstance(input, Handle):
        need_tensor(name, input)
    return input


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
