"""Large products of float32 whose factors become bfloat16 digits, for tensor cores.

Threads multiply float32 at a fifteenth of the rate at which tensor cores multiply bfloat16. Six of
these products, of a factor's three digits, are as exact as one of float32 (`kernel/digits.py`).
Digits are written to memory first, by a kernel for each factor.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.node import Node, intern
from tilewright.ir.op import Kind

from ..ops import DIGITS, of_digits
from ..target import Target

_ALIGNED = 8  # elements: rows of digits begin at multiples of 16 bytes
_NUMBER, _DIGITS = 4, 6  # bytes
_REACHED = 0.75  # of the rate of float32 in threads: measured on an H100
_LAUNCHES = 6e-6  # seconds
_GAIN = 1.2  # the least for which memory is taken for digits


@dataclass(frozen=True)
class MultiplyDigits:
    """Turns a product of float32 into one of numbers that are made of their digits."""

    target: Target

    def __call__(self, node: Node) -> Node | None:
        if node.op is not ops.matmul or any(o.dtype is not float32 for o in node.operands):
            return None
        if any(map(is_of_digits, node.operands)) or not self._pays(node):
            return None
        a, b = map(_in_digits, node.operands)
        return intern(node.op, (a, b), node.attrs, loc=node.loc)

    def _pays(self, node: Node) -> bool:
        chip, target = self.target.chip, self.target
        if not target.digits or target.rounds(False) or "bfloat16" not in chip.tensor:
            return False
        rows, columns = node.shape[-2:]
        if min(rows, columns) < chip.rows or any(_is_number(o) for o in node.operands):
            return False
        flops = 2 * math.prod(node.shape) * node.operands[0].shape[-1]
        element = sum(math.prod(_source(o).shape) for o in node.operands) / chip.bandwidth
        in_threads = max(flops / (chip.flops(float32) * _REACHED), _NUMBER * element)
        rate = chip.flops(float32, digits=True) * chip.sustained
        in_digits = max(flops / rate, _DIGITS * element)
        in_digits += (_NUMBER + _DIGITS) * element + _LAUNCHES
        return _GAIN * in_digits < in_threads


def is_of_digits(node: Node) -> bool:
    """Whether a product's factor is made of its digits."""
    while node.op.kind is Kind.MOVEMENT and node.op is not ops.cat_op:
        node = node.operands[0]
    return node.op is of_digits


def _in_digits(factor: Node) -> Node:
    """`factor` made of its digits. They lie in memory as the factor does before it is turned and
    expanded, so that a product and those of its gradients share them."""
    source = _source(factor)
    length = source.shape[-1]
    over = -length % _ALIGNED
    if over:
        none = (0,) * source.rank
        whole = ops.pad(source, none, (*none[:-1], over))
    else:
        whole = source
    made = of_digits(*(digit(whole) for digit in DIGITS))
    if over:
        made = ops.slice_axis(made, source.rank - 1, 0, length)
    path = []
    while factor is not source:
        path.append(factor)
        factor = factor.operands[0]
    for node in reversed(path):
        made = intern(node.op, (made,), node.attrs, loc=node.loc)
    return made


def _source(factor: Node) -> Node:
    while factor.op is ops.permute_op or factor.op is ops.expand_op:
        factor = factor.operands[0]
    return factor


def _is_number(factor: Node) -> bool:
    return math.prod(_source(factor).shape) == 1
