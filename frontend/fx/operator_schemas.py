"""torch.fx.operator_schemas: arguments in the order, or by the names, of signatures."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from typing import Any, NamedTuple

from tilewright.ir.location import at_user_line

from ..nn import Module

__all__ = [
    "ArgsKwargsPair",
    "check_for_mutable_operation",
    "create_type_hint",
    "get_signature_for_torch_op",
    "normalize_function",
    "normalize_module",
    "type_matches",
]


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


def check_for_mutable_operation(
    target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """RuntimeError for a function that writes to an argument: its name ends with one underscore, or
    `out` is given."""
    name = getattr(target, "__name__", "")
    if (name.endswith("_") and not name.endswith("__")) or kwargs.get("out") is not None:
        raise RuntimeError(
            f"Tried to trace mutable operation {name}. FX only supports functional code, so "
            "operations that mutate operands in-place (e.g. via `out` arguments) are not supported"
            f"{at_user_line()}"
        )


def create_type_hint(x: Any) -> Any:
    """The type of a list or tuple of types: List[t] or Tuple[t, ...], where t is the one of them
    that the others are subclasses of; Any if there is none. What else isn't a type stays."""
    if not isinstance(x, (list, tuple)):
        return x

    def whole(kind: Any) -> Any:
        return list[kind] if isinstance(x, list) else tuple[kind, ...]

    if not x:
        return whole(Any)
    if not all(isinstance(each, type) for each in x):
        return x
    for base in x:
        if all(issubclass(each, base) for each in x):
            return whole(base)
    return whole(Any)


def type_matches(signature_type: Any, argument_type: Any) -> bool:
    """Whether a value of a type may be given where a signature has another one."""
    origin = typing.get_origin(signature_type)
    if signature_type is argument_type:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(type_matches(each, argument_type) for each in typing.get_args(signature_type))
    if origin is list:
        (inner,) = typing.get_args(signature_type) or (Any,)
        if typing.get_origin(argument_type) in (list, tuple):
            parts = [a for a in typing.get_args(argument_type) if a is not ...]
            return all(type_matches(inner, part) for part in parts)
        return type_matches(inner, argument_type)  # one number for a list of them
    if inspect.isclass(argument_type) and inspect.isclass(signature_type):
        return issubclass(argument_type, signature_type)
    return False
