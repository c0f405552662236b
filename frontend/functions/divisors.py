"""The greatest common divisor and the least common multiple."""

from __future__ import annotations

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node
from tilewright.ir.op import not_implemented

from .call import binary
from .promotion import promoted


def _whole(name: str, a: Node, b: Node) -> tuple[Node, Node]:
    a, b = promoted(a, b)
    if a.dtype.category not in (dtypes.SIGNED, dtypes.UNSIGNED):
        raise not_implemented(name, a.dtype)
    return a, b


def _gcd(a: Node, b: Node) -> Node:
    return ops.gcd(*_whole("gcd", a, b))


def _lcm(a: Node, b: Node) -> Node:
    a, b = _whole("lcm", a, b)
    divisor = ops.gcd(a, b)
    zero = ops.zeros_like(divisor)
    nothing = ops.eq(divisor, zero)
    divisor = ops.where(nothing, ops.full_like(divisor, 1), divisor)
    if not a.dtype.is_signed:
        multiple = ops.floor_divide(a, divisor) * b
    elif a.dtype.itemsize < 4:  # as in C, the magnitude is that of an int, which does not overflow
        multiple = ops.floor_divide(ops.abs(a), divisor) * ops.abs(b)
    else:
        multiple = ops.abs(ops.floor_divide(a, divisor) * b)
    return ops.where(nothing, zero, multiple)


gcd = binary("gcd", _gcd, numbers=False, in_place_function=True)
lcm = binary("lcm", _lcm, numbers=False, in_place_function=True)
