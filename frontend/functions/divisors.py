"""The greatest common divisor and the least common multiple."""

from __future__ import annotations

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .call import binary
from .promotion import promoted


def _whole(name: str, a: Node, b: Node) -> tuple[Node, Node]:
    a, b = promoted(a, b)
    if a.dtype.category not in (dtypes.SIGNED, dtypes.UNSIGNED):
        raise RuntimeError(f'"{name}" not implemented for {a.dtype}{at_user_line()}')
    return a, b


def _gcd(a: Node, b: Node) -> Node:
    a, b = (ops.abs(n) if n.dtype.is_signed else n for n in _whole("gcd", a, b))
    zero, one = ops.zeros_like(b), ops.full_like(b, 1)
    # Euclid's algorithm. Its longest ways start at neighbours in Fibonacci's sequence, whose
    # members with n bits are fewer than 1.45 n.
    for _ in range(int(1.45 * 8 * a.dtype.itemsize)):
        done = ops.eq(b, zero)
        rest = ops.remainder(a, ops.where(done, one, b))
        a, b = ops.where(done, a, b), ops.where(done, zero, rest)
    return a


def _lcm(a: Node, b: Node) -> Node:
    a, b = _whole("lcm", a, b)
    divisor = _gcd(a, b)
    zero = ops.zeros_like(divisor)
    nothing = ops.eq(divisor, zero)
    divisor = ops.where(nothing, ops.full_like(divisor, 1), divisor)
    multiple = ops.floor_divide(a, divisor) * b
    multiple = ops.abs(multiple) if a.dtype.is_signed else multiple
    return ops.where(nothing, zero, multiple)


gcd = binary("gcd", _gcd, numbers=False, in_place_function=True)
lcm = binary("lcm", _lcm, numbers=False, in_place_function=True)
