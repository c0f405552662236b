"""The call of an operator with whoever has a `__torch_dispatch__`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.ir.location import at_user_line

from .. import overriding
from ..recording import Handle


def answers(value: Any) -> bool:
    """Whether a value's class has a `__torch_dispatch__`."""
    return (
        isinstance(value, Handle) and getattr(type(value), "__torch_dispatch__", None) is not None
    )


def operator(op: Any, *args: Any, **kwargs: Any) -> Any:
    """What a form of an operator gives, with whoever has a `__torch_dispatch__`."""
    found = asked_of(args, kwargs)
    if not overriding.state.dispatching and not found:
        return op(*args, **kwargs)
    return answer(op, found, args, kwargs)


def asked_of(args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments that have a `__torch_dispatch__`, one of each class."""
    return overriding.first_of_each(v for v in overriding.arguments(args, kwargs) if answers(v))


def answer(op: Any, found: Sequence[Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """What the innermost mode gives for an operator, or the first of the values in `found`."""
    state = overriding.state
    types = tuple(map(type, found))
    modes = state.dispatching
    if modes:
        *state.dispatching, mode = modes
        try:
            result = mode.__torch_dispatch__(op, types, tuple(args), kwargs)
        finally:
            state.dispatching = modes
        if result is not NotImplemented:
            return result
    for value in found:
        result = type(value).__torch_dispatch__(op, types, tuple(args), kwargs)
        if result is not NotImplemented:
            return result
    raise TypeError(
        f"Multiple dispatch failed for '{op}'; all __torch_dispatch__ handlers returned "
        f"NotImplemented: {', '.join(map(str, (*modes[-1:], *types)))}{at_user_line()}"
    )
