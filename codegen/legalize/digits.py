"""Large products of float32 whose factors become bfloat16 digits, for tensor cores.

Threads multiply float32 at a fifteenth of the rate at which tensor cores multiply bfloat16. Six of
these products, of a factor's three digits, are as exact as one of float32 (`kernel/digits.py`).
Digits are written to memory first, by a kernel for each factor.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import float32
from tilewright.ir.node import Node, grad_mode, intern, reachable
from tilewright.ir.op import Kind

from ..ops import DIGITS, of_digits
from ..target import Target

_ALIGNED = 8  # elements: rows of digits begin at multiples of 16 bytes
_NUMBER, _DIGITS = 4, 6  # bytes
_REACHED = 0.75  # of the rate of float32 in threads: measured on an H100
_LAUNCHES = 6e-6  # seconds
_GAIN = 1.2  # the least for which memory is taken for digits
_NEAR = 12
"""The most nodes between two products that share digits: the gradients of a layer's factors do, but
not the layer and its gradients, between which digits would lie in memory all the time."""


def multiply_digits(
    roots: Sequence[Node], target: Target, inner: Sequence[Node] = ()
) -> list[Node]:
    """Turns large products of float32 into those of numbers that are made of their digits. Gives
    `roots`, then `inner`."""
    nodes = reachable(roots)
    if not any(_pays(node, target) for node in nodes):
        return [*roots, *inner]
    made: dict[Node, Node] = {}
    seen: dict[Node, tuple[int, int]] = {}  # the place of a source's last use, and its time
    with grad_mode(False):
        for place, node in enumerate(nodes):
            operands = tuple(made[o] for o in node.operands)
            if _pays(node, target):
                times = []
                for source in map(_source, node.operands):
                    before, time = seen.get(source, (place, 0))
                    time += place - before > _NEAR
                    seen[source] = place, time
                    times.append(time)
                operands = tuple(map(_in_digits, operands, times))
            same = operands == node.operands
            made[node] = node if same else intern(node.op, operands, node.attrs, loc=node.loc)
    return [made.get(n, n) for n in (*roots, *inner)]


def is_of_digits(node: Node) -> bool:
    """Whether a product's factor is made of its digits."""
    while node.op.kind is Kind.MOVEMENT and node.op is not ops.cat_op:
        node = node.operands[0]
    return node.op is of_digits


def _pays(node: Node, target: Target) -> bool:
    """Whether a node is a product that takes less time so, with the writing of digits."""
    if node.op is not ops.matmul or not target.digits or target.rounds(False):
        return False
    chip, (a, b) = target.chip, node.operands
    if a.dtype is not float32 or b.dtype is not float32 or min(node.shape[-2:]) < chip.rows:
        return False
    sizes = [math.prod(_source(o).shape) for o in (a, b)]
    flops = 2 * math.prod(node.shape) * a.shape[-1]
    element = sum(sizes) / chip.bandwidth
    in_threads = max(flops / (chip.flops(float32) * _REACHED), _NUMBER * element)
    rate = chip.flops(float32, digits=True) * chip.sustained
    in_digits = max(flops / rate, _DIGITS * element) + (_NUMBER + _DIGITS) * element + _LAUNCHES
    return 1 not in sizes and _GAIN * in_digits < in_threads  # not a number, expanded


def _in_digits(factor: Node, time: int) -> Node:
    """`factor` made of its digits. They lie in memory as the factor does before it is turned and
    expanded, so that products of both forms share them."""
    source = _source(factor)
    length = source.shape[-1]
    over = -length % _ALIGNED
    whole = source
    if over:
        none = (0,) * source.rank
        whole = ops.pad(source, none, (*none[:-1], over))
    made = of_digits(*(digit(whole, time) for digit in DIGITS))
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
