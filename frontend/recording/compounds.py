"""Compound tensors: handles that are made of dense tensors, as sparse and nested ones are.

A compound has no node. In the place of one it has `COMPOUND`, which is the key of no call that was
recorded. So a call with a compound goes the slow way of a new call, and finds the rule of the
compound's class for it there: recording a call of dense tensors asks nothing for this. The rule
makes the result by calls of the parts, which are recorded as usual.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

from tilewright.ir.location import at_user_line

from .builders import name_of
from .states import Handle

Rule = TypeVar("Rule", bound=Callable[..., Any])


class _NoNode:
    """Stands where a dense tensor has its node. A call that reads it has no form for compounds."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise NotImplementedError(
            "this call takes dense tensors only, and was given a sparse, nested or wrapped one: "
            f"convert it with to_dense(), or work on its values(){at_user_line()}"
        )


class Gradients:
    """What is known of the gradients of a process.

    are_sparse: whether any tensor ever had a sparse gradient. Until then optimizers look for none.
    """

    are_sparse = False


gradients = Gradients()
COMPOUND: Any = _NoNode()
sparse: Callable[[], Any]
"""The module torch.sparse, which is imported when something sparse is met; set by publish.py."""

_rules: dict[type, dict[Any, Callable[..., Any]]] = {}


class _Several(tuple[Any, ...]):
    """The results of a call, which are tensors already."""

    __slots__ = ()


def rule(kind: type, *calls: Any) -> Callable[[Rule], Rule]:
    """Declare the decorated function as what `calls` (builders, kinds of views) do where an operand
    is a compound of class `kind`. It gets the arguments of the call, and returns a tensor."""

    def declare(function: Rule) -> Rule:
        known = _rules.setdefault(kind, {})
        for call in calls:
            if call in known:
                raise ValueError(f"{name_of(call) or call} has two rules for {kind.__name__}")
            known[call] = function
        return function

    return declare


def is_compound(value: Any) -> bool:
    return isinstance(value, Handle) and value._node is COMPOUND


def apply(call: Any, args: Sequence[Any]) -> Any:
    """The result of a call by the rule of the first compound among its arguments."""
    first: Any = next(a for a in args if is_compound(a))
    for kind in type(first).__mro__:
        found = _rules.get(kind, {}).get(call)
        if found is not None:
            result = found(*args)
            return _Several(result) if type(result) is tuple else result
    _refuse(call, first)


def _refuse(call: Any, t: Any) -> NoReturn:
    name = name_of(call) or getattr(call, "name", "this call")
    if getattr(type(t), "__torch_dispatch__", None) is not None:
        raise NotImplementedError(
            f"{name}: {type(t).__name__}.__torch_dispatch__ isn't asked for this call, as no "
            f"operator of aten is known for it{at_user_line()}"
        )
    raise NotImplementedError(
        f"{name}: not implemented for tensors of layout {t.layout}: {t._advice}{at_user_line()}"
    )
