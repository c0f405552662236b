"""Bounds of values that follow from how they are made, such as angles of random numbers."""

from __future__ import annotations

import math

from tilewright.ir import ops
from tilewright.ir.dtype import SIGNED, DType

from ..kernel import Apply, Constant, Position, Value

_DEEP = 12
"""The operations on the way from a random word to an angle are fewer."""


def bound(value: Value, depth: int = _DEEP) -> float:
    """What the size of a real value never exceeds; infinite if nothing is known."""
    if isinstance(value, Constant):
        return abs(float(value.value))
    if isinstance(value, Position):
        return float(max(map(abs, value.index.bounds())))
    if not isinstance(value, Apply) or depth == 0:
        return _most(value.dtype)
    args = [bound(a, depth - 1) for a in value.args]
    if value.op is ops.cast:
        return min(args[0], _most(value.target or value.dtype))
    if value.op is ops.shift_right and isinstance(value.args[1], Constant):
        return args[0] / 2.0 ** int(value.args[1].value) + 1  # -1 stays -1
    if value.op in (ops.add, ops.sub):
        return sum(args)
    if value.op is ops.mul:
        return math.prod(args)
    return args[0] if value.op in (ops.neg, ops.abs) else _most(value.dtype)


def _most(dtype: DType) -> float:
    """The largest size of a number of a type; infinite for a float."""
    whole = dtype.category <= SIGNED
    return 2.0 ** (8 * dtype.itemsize) if whole else math.inf
