"""The formula of each elementwise op on complex numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, DType
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.unary import zeros_like

from . import arithmetic, functions
from .arithmetic import Pair

Part = Node | Pair
"""A real node, or the parts of a complex one."""


def _cast(x: Part, dtype: DType) -> Part:
    if isinstance(x, Node):
        real = ops.cast(x, dtype.to_real())
        return real, zeros_like(real)
    if dtype.is_complex:
        return ops.cast(x[0], dtype.to_real()), ops.cast(x[1], dtype.to_real())
    if dtype.category == BOOL:
        return ops.bitwise_or(ops.cast(x[0], dtype), ops.cast(x[1], dtype))
    return ops.cast(x[0], dtype)


FORMULAS: dict[Op, Callable[..., Any]] = {
    ops.real: lambda z: z[0],
    ops.imag: lambda z: z[1],
    ops.complex: lambda x, y: (x, y),
    ops.conj_op: arithmetic.conj,
    ops.cast: _cast,
    ops.where: arithmetic.where,
    ops.add: arithmetic.add,
    ops.sub: arithmetic.sub,
    ops.mul: arithmetic.mul,
    ops.div: arithmetic.div,
    ops.neg: arithmetic.neg,
    ops.eq: arithmetic.eq,
    ops.ne: arithmetic.ne,
    ops.reciprocal: arithmetic.reciprocal,
    ops.pow: functions.pow,
    ops.sqrt: functions.sqrt,
    ops.rsqrt: functions.rsqrt,
    ops.exp: functions.exp,
    ops.exp2: functions.exp2,
    ops.expm1: functions.expm1,
    ops.log: functions.log,
    ops.log2: functions.log2,
    ops.log10: functions.log10,
    ops.log1p: functions.log1p,
    ops.sin: functions.sin,
    ops.cos: functions.cos,
    ops.tan: functions.tan,
    ops.asin: functions.asin,
    ops.acos: functions.acos,
    ops.atan: functions.atan,
    ops.sinh: functions.sinh,
    ops.cosh: functions.cosh,
    ops.tanh: functions.tanh,
    ops.asinh: functions.asinh,
    ops.acosh: functions.acosh,
    ops.atanh: functions.atanh,
    ops.sigmoid: functions.sigmoid,
}
"""formula(*operands, *attrs), where a complex operand is a pair; the result is one if it is
complex. Both operands may be broadcast."""
