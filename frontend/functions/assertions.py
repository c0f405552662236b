"""Conditions that a program states: `torch._assert`, `torch._check` and its like."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir.dtype import bool_
from tilewright.ir.location import at_user_line

from ..overriding import ask, has_override
from ..recording import Handle


def _assert(condition: Any, message: str) -> None:
    """Raise an AssertionError unless the condition holds. Functions of torch.fx keep it."""
    if has_override(condition):
        ask(_assert, [condition], (condition, message), {})
    else:
        assert condition, message


def _check(cond: Any, message: Callable[[], str] | None = None) -> None:
    """Raise a RuntimeError unless the condition holds."""
    if not cond:
        raise RuntimeError((message() if message else "Expected cond to be True") + at_user_line())


def _check_with(
    error_type: type[Exception], cond: Any, message: Callable[[], str] | None = None
) -> None:
    """Raise an error of a class unless the condition, or all of a tensor, holds."""
    held = bool(cond.all()) if isinstance(cond, Handle) else cond
    if not held:
        raise error_type(
            (message() if message else f"Expected cond to be True, but got {cond}") + at_user_line()
        )


def _check_is_size(i: Any, message: Callable[[], str] | None = None, *, max: Any = None) -> None:
    """Raise an error unless a number can be a size: at least 0, and at most `max` if given."""
    _check(i >= 0, message)
    if max is not None:
        _check(i <= max, message)


def _check_index(cond: Any, message: Callable[[], str] | None = None) -> None:
    _check_with(IndexError, cond, message)


def _check_value(cond: Any, message: Callable[[], str] | None = None) -> None:
    _check_with(ValueError, cond, message)


def _check_type(cond: Any, message: Callable[[], str] | None = None) -> None:
    _check_with(TypeError, cond, message)


def _check_not_implemented(cond: Any, message: Callable[[], str] | None = None) -> None:
    _check_with(NotImplementedError, cond, message)


def _check_tensor_all_with(
    error_type: type[Exception], cond: Any, message: Callable[[], str] | None = None
) -> None:
    """Raise an error of a class unless all elements of a tensor of booleans hold."""
    if not isinstance(cond, Handle) or cond.dtype is not bool_:
        raise TypeError(f"cond must be a tensor of torch.bool{at_user_line()}")
    _check_with(error_type, cond, message)


def _check_tensor_all(cond: Any, message: Callable[[], str] | None = None) -> None:
    _check_tensor_all_with(RuntimeError, cond, message)


def _assert_async(cond: Any, message: str = "") -> None:
    """Raise a RuntimeError unless a tensor's one element is nonzero. It is read at once."""
    if not bool(cond):
        raise RuntimeError(
            (message or "Expected Tensor with single nonzero value, but got zero") + at_user_line()
        )
