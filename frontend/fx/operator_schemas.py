"""torch.fx.operator_schemas: arguments in the order, or by the names, of signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from ..nn import Module

__all__ = ["ArgsKwargsPair", "get_signature_for_torch_op", "normalize_function", "normalize_module"]


class ArgsKwargsPair(NamedTuple):
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def get_signature_for_torch_op(
    op: Callable[..., Any], return_schemas: bool = False
) -> list[inspect.Signature] | None:
    """The signatures of a function of torch: one, as there are no overloads here."""
    try:
        return [inspect.signature(op)]
    except (TypeError, ValueError):
        return None


def normalize_function(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    arg_types: tuple[Any, ...] | None = None,
    kwarg_types: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The arguments of a call of a function with all defaults; None if it has no signature, or
    they don't fit it.

    normalize_to_only_use_kwargs: all by name. Otherwise those that may stand in order do.
    """
    try:
        signature = inspect.signature(target)
    except (TypeError, ValueError):
        return None
    return _normalized(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def normalize_module(
    root: Module,
    target: str,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    normalize_to_only_use_kwargs: bool = False,
) -> ArgsKwargsPair | None:
    """The same of a call of the module at a path."""
    signature = inspect.signature(root.get_submodule(target).forward)
    return _normalized(signature, args, kwargs or {}, normalize_to_only_use_kwargs)


def _normalized(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: dict[str, Any], by_name: bool
) -> ArgsKwargsPair | None:
    parameters = signature.parameters.values()
    if any(p.kind is p.VAR_POSITIONAL for p in parameters):
        return None
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:
        return None
    bound.apply_defaults()
    if not by_name:
        return ArgsKwargsPair(bound.args, bound.kwargs)
    if any(p.kind is p.POSITIONAL_ONLY for p in parameters):
        return None
    named: dict[str, Any] = {}
    for p in parameters:
        value = bound.arguments[p.name]
        named.update(value if p.kind is p.VAR_KEYWORD else {p.name: value})
    return ArgsKwargsPair((), named)
