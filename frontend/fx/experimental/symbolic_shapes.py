"""torch.fx.experimental.symbolic_shapes: questions about unknown sizes. Here all sizes are known
numbers, so each has its plain answer."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ConstraintViolationError",
    "GuardOnDataDependentSymNode",
    "free_symbols",
    "free_unbacked_symbols",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "has_free_symbols",
    "is_concrete_bool",
    "is_concrete_float",
    "is_concrete_int",
    "statically_known_true",
]


class GuardOnDataDependentSymNode(RuntimeError):
    """An exported program asks for a value that depends on its inputs."""


class ConstraintViolationError(RuntimeError):
    """An exported program isn't the same for all sizes that it was declared for."""


def guard_or_false(a: Any) -> bool:
    return bool(a)


guard_or_true = guard_size_oblivious = statically_known_true = guard_or_false


def free_symbols(val: Any) -> set[Any]:
    """None: all sizes are numbers."""
    return set()


free_unbacked_symbols = free_symbols


def has_free_symbols(val: Any) -> bool:
    return False


def is_concrete_int(a: Any) -> bool:
    return isinstance(a, int)


def is_concrete_float(a: Any) -> bool:
    return isinstance(a, float)


def is_concrete_bool(a: Any) -> bool:
    return isinstance(a, bool)
