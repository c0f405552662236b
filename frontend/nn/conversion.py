"""How `Module.to` and its like replace parameters; see `torch.__future__`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .parameter import Parameter

overwrites = False
"""Whether they make new parameters, instead of giving those that are there another value."""
swaps = False
"""Whether they exchange the tensors. To a program that is the same as giving them another value."""


def converted(value: Any, fn: Callable[[Any], Any]) -> Any:
    """A new parameter in the place of `value`."""
    new = Parameter(fn(value), value.requires_grad)
    if value.grad is not None:
        new.grad = fn(value.grad)
    return new
