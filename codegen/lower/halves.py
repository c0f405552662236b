"""Roundings to half types within a kernel.

Kernels compute in float32. An element of a half type is rounded all the same, as memory would round
it, so its bits don't depend on whether another kernel reads it. No rounding is written where the
half type holds the element exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import HALVES, DType, float32
from tilewright.ir.op import Fold

from ..kernel import Apply, Constant, Guard, Load, Reduce, Scan, Value


class Halves:
    """The roundings among the values of one kernel.

    apply: `Lowering.apply`, which makes the value of an op.
    """

    def __init__(self, apply: Callable[..., Value]):
        self._apply = apply
        self._holders: dict[int, DType] = {}  # the half type that holds a value, by its id

    def rounded(self, value: Value, dtype: DType) -> Value:
        """`value`, an element of a tensor of `dtype`, as memory would return it."""
        if value.dtype is not float32:
            return value
        holder = self._known_holder(value) or self._holder_of_parts(value)
        if dtype in HALVES and holder is not dtype:
            holder = dtype
            value = self._apply(ops.cast, (value,), float32, dtype)
        if holder is not None:
            self._holders[id(value)] = holder
        return value

    def _known_holder(self, value: Value) -> DType | None:
        known = self._holders.get(id(value))
        if known is None and isinstance(value, Load) and value.buffer.dtype in HALVES:
            return value.buffer.dtype
        return known

    def _holder_of_parts(self, value: Value) -> DType | None:
        """The half type that holds `value` because its op adds no digits to values held by it."""
        parts: Sequence[Value] = ()
        if isinstance(value, Apply):
            if value.op is ops.cast:
                return value.target
            parts = value.args if value.op.error == 0 else ()
        elif isinstance(value, Guard):
            parts = (value.inside, value.outside)
        elif isinstance(value, (Reduce, Scan)) and value.op in (Fold.MAX, Fold.MIN):
            parts = (value.arg,)
        numbers = [p for p in parts if p.dtype is float32 and not _fits_halves(p)]
        holders = {self._known_holder(p) for p in numbers}
        return holders.pop() if len(holders) == 1 else None


def _fits_halves(value: Value) -> bool:
    """Whether a value is a constant that every half type holds: at most 8 significant bits, neither
    large nor small."""
    if not isinstance(value, Constant) or value.dtype is not float32:
        return False
    fraction, exponent = math.frexp(float(value.value))
    return not math.isfinite(fraction) or (fraction * 256 % 1 == 0 and -13 <= exponent <= 15)
