"""What a public function asks, and the modes that it asks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from .. import overriding
from .calls import answer, asked_of
from .formulas import known
from .names import as_operator, form_of, in_place_or_not, names

Function = Callable[..., Any]


def asked(func: Function, own: Function, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The call of a public function with whoever has a `__torch_dispatch__`. own: what computes
    it."""
    found = asked_of(args, kwargs)
    if not overriding.state.dispatching and not found:
        return own(*args, **kwargs)
    formula = known().get(func)
    if formula is not None:
        return formula(*args, **kwargs)
    name = names().get(func)
    if name is None:
        return own(*args, **kwargs)
    name, args, kwargs = in_place_or_not(func, name, args, kwargs)
    args, kwargs = as_operator(func, name, args, kwargs)
    return answer(form_of(name, args, kwargs), found, args, kwargs)


def enter(mode: Any) -> None:
    overriding.dispatch(asked)
    overriding.state.dispatching = [*overriding.state.dispatching, mode]


def leave(mode: Any) -> None:
    *overriding.state.dispatching, last = overriding.state.dispatching
    assert last is mode, "modes are left in the reverse order"


def modes() -> Iterator[Any]:
    """The modes of this thread, outermost first."""
    return iter(overriding.state.dispatching)
