"""The limits of integer values: what their expressions tell without the data that they read."""

from __future__ import annotations

from collections.abc import Callable

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT, UNSIGNED, DType
from tilewright.ir.op import Op

from .ir import Apply, Constant, Position, Value

Limits = tuple[int, int]

_DEPTH = 16
"""The operations that are looked through; what lies below them can be anything."""


def _abs(a: Limits) -> Limits:
    low, high = a
    return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))


_RULES: dict[Op, Callable[..., Limits]] = {
    ops.abs: _abs,
    ops.neg: lambda a: (-a[1], -a[0]),
    ops.add: lambda a, b: (a[0] + b[0], a[1] + b[1]),
    ops.sub: lambda a, b: (a[0] - b[1], a[1] - b[0]),
    ops.maximum: lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
    ops.minimum: lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    ops.where: lambda _, a, b: (min(a[0], b[0]), max(a[1], b[1])),
    ops.cast: lambda a: a,
}


def limits(value: Value) -> Limits:
    """The smallest and the largest number that an integer value can be."""
    known: dict[int, Limits] = {}

    def of(value: Value, depth: int) -> Limits:
        found = known.get(id(value))
        if found is None:
            found = known[id(value)] = within(value, depth)
        return found

    def within(value: Value, depth: int) -> Limits:
        most = _of_type(value.dtype)
        if isinstance(value, Position):
            found = value.index.bounds()
        elif isinstance(value, Constant):
            found = int(value.value), int(value.value)
        elif isinstance(value, Apply) and value.op in _RULES and depth:
            if any(a.dtype.category >= FLOAT for a in value.args):
                return most
            found = _RULES[value.op](*(of(a, depth - 1) for a in value.args))
        else:
            return most
        # What doesn't fit wraps around.
        return found if most[0] <= found[0] and found[1] <= most[1] else most

    return of(value, _DEPTH)


def _of_type(dtype: DType) -> Limits:
    bits = 8 * dtype.itemsize
    if dtype.category == UNSIGNED:
        return 0, (1 << bits) - 1
    return -(1 << bits - 1), (1 << bits - 1) - 1
