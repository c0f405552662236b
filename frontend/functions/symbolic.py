"""Functions of numbers that PyTorch may not know while it compiles. Here all are Python's."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterable
from typing import Any

from tilewright.ir.location import at_user_line

SymInt, SymFloat, SymBool = (type(name, (), {}) for name in ("SymInt", "SymFloat", "SymBool"))
"""PyTorch's classes of unknown numbers; nothing is one of them."""


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
