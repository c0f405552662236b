"""Small functions of torch about names, checks, and numbers that PyTorch may not know while it
compiles. Here all numbers are Python's."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterable
from typing import Any

from tilewright.ir.dtype import bool_, int64
from tilewright.ir.location import at_user_line

from .exchange.storages import TypedStorage, UntypedStorage
from .functions import creation
from .overriding import ask, has_override
from .recording import Handle

SymInt, SymFloat, SymBool = (type(name, (), {}) for name in ("SymInt", "SymFloat", "SymBool"))
"""PyTorch's classes of unknown numbers; nothing is one of them."""


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


def is_storage(obj: Any, /) -> bool:
    return isinstance(obj, (TypedStorage, UntypedStorage))


def sym_int(a: Any) -> int:
    return math.trunc(a)


def sym_float(a: Any) -> float:
    return builtins.float(a)


def sym_not(a: Any) -> bool:
    return not a


def sym_max(a: Any, b: Any) -> Any:
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    return min(a, b)


def sym_sum(args: Iterable[Any]) -> Any:
    return sum(args)


def sym_sqrt(a: Any) -> float:
    return math.sqrt(a)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    return t if b else f


def sym_fresh_size(expr: Any) -> Any:
    return expr


_LEAST, _LARGEST = -(1 << 63), (1 << 63) - 1


def sym_constrain_range(size: Any, *, min: int | None = None, max: int | None = None) -> None:
    """RuntimeError unless a number lies between two others, both among them."""
    low, high = _LEAST if min is None else min, _LARGEST if max is None else max
    if high < low:
        raise RuntimeError(
            f"Max must be greater than or equal to min. Got min={low} max={high}{at_user_line()}"
        )
    if not low <= int(size) <= high:
        raise RuntimeError(
            f"Invalid value range for {int(size)} between [{low}, {high}].{at_user_line()}"
        )


def sym_constrain_range_for_size(
    size: Any, *, min: int | None = None, max: int | None = None
) -> None:
    """The same for the size of a dimension, which is not negative and may be more than 2."""
    if max is not None and max <= 2:
        raise RuntimeError(
            f"Max value to constrain_range_for_size must be greater than 2. got: {max}"
            f"{at_user_line()}"
        )
    sym_constrain_range(size, min=0 if min is None else min, max=max)


def _assert_async(cond: Any, message: str = "") -> None:
    """Raise a RuntimeError unless a tensor's one element is nonzero. It is read at once."""
    if not bool(cond):
        raise RuntimeError(
            (message or "Expected Tensor with single nonzero value, but got zero") + at_user_line()
        )


def _shape_as_tensor(input: Any) -> Any:
    """The sizes of a tensor, as a tensor."""
    return creation.tensor(list(input.shape), dtype=int64)
