"""The pass that makes pairs of real numbers of complex ones.

In memory complex numbers stay as they are: the parts of an element are neighbours there. A complex
node that is computed becomes `pair(x, y)` of its real parts, which a kernel stores side by side;
one that is in memory is read by `part(z, i)`. All that lies between is real, so that fusion,
lowering and emitters work on it as on any other graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import DType, complex32
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node, grad_mode, intern, reachable, set_location
from tilewright.ir.numeric.products import are_rows
from tilewright.ir.numeric.special import cast
from tilewright.ir.op import Kind, Op
from tilewright.ir.ops.composite import as_dtype, to_accumulator
from tilewright.ir.ops.generate import constant_value, scalar

from ..ops import flat, initial, pair, part, running_product, small_products, total_product, unflat
from ..target import Target
from . import products
from .arithmetic import Pair
from .elementwise import FORMULAS, Part
from .products import PRODUCTS, Factor


def split_complex(roots: Sequence[Node], target: Target) -> list[Node]:
    """`roots` without arithmetic on complex numbers."""
    nodes = reachable(roots)
    if not any(_is_split(n.dtype, target) for n in nodes):
        return list(roots)
    split = _Split(target.host_memory)
    before = set_location(None)
    try:
        with grad_mode(False):
            for node in nodes:
                set_location(node.loc)
                split.add(node)
            return [split.node(r) for r in roots]
    finally:
        set_location(before)


def _is_split(dtype: DType, target: Target) -> bool:
    """Whether complex numbers of a dtype are split. No target computes with complex32."""
    return dtype.is_complex and (dtype is complex32 or not target.complex_numbers)


class _Split:
    """host: whether routines of the host share memory with kernels."""

    def __init__(self, host: bool) -> None:
        self._host = host
        self._real: dict[Node, Node] = {}
        self._parts: dict[Node, Pair] = {}
        self._whole: dict[Node, Node] = {}

    def node(self, node: Node) -> Node:
        """What a node becomes; for a complex one the node that has it in memory."""
        if not node.dtype.is_complex:
            return self._real[node]
        found = self._whole.get(node)
        if found is None:
            if node.op is ops.reshape_op:  # its elements lie as those of its operand
                found = ops.reshape(self.node(node.operands[0]), node.shape)
            elif node.op is ops.cat_op and all(o.op.kind in _IN_MEMORY for o in node.operands):
                # Both parts of a number move together.
                lines = tuple([flat(self.node(o)) for o in node.operands])
                found = unflat(intern(node.op, lines, node.attrs))
            else:
                found = pair(*self._parts[node])
            self._whole[node] = found
        return found

    def add(self, node: Node) -> None:
        if not (node.dtype.is_complex or any(o.dtype.is_complex for o in node.operands)):
            operands = tuple([self._real[o] for o in node.operands])
            same = operands == node.operands
            self._real[node] = node if same else intern(node.op, operands, node.attrs)
        elif node.op.kind in _IN_MEMORY or node.op is initial:
            self._keep(node)
        else:
            self._compute(node)

    def _keep(self, node: Node) -> None:
        """A node that memory holds, or that a routine computes from memory."""
        if node.op is scalar:
            raise NotImplementedError(
                f"a complex number that changes from run to run has no kernel{at_user_line()}"
            )
        operands = tuple([self.node(o) for o in node.operands])
        made = intern(node.op, operands, node.attrs) if operands else node
        if node.dtype.is_complex:
            self._whole[node] = made
            self._parts[node] = part(made, 0), part(made, 1)
        else:
            self._real[node] = made

    def _compute(self, node: Node) -> None:
        made = self._formula(node)
        if isinstance(made, Node) and not node.dtype.is_complex:
            self._real[node] = made
        elif isinstance(made, Node):
            self._whole[node] = made
            self._parts[node] = part(made, 0), part(made, 1)
        elif node.op.kind is Kind.MOVEMENT or node.op.kind is Kind.CONSTANT:
            self._parts[node] = made
        else:
            # Who reads the parts reads them of one node, which may be kept in memory for them.
            whole = self._whole[node] = pair(*made)
            self._parts[node] = part(whole, 0), part(whole, 1)

    def _formula(self, node: Node) -> Node | Pair:
        op, attrs = node.op, node.attrs
        if op.kind is Kind.CONSTANT:
            value, dtype = cast(constant_value(node), np.complex128).item(), node.dtype.to_real()
            return ops.constant(value.real, dtype), ops.constant(value.imag, dtype)
        if op is ops.cumprod_op and self._host:
            return running_product(self.node(node.operands[0]), *attrs, 0)
        if op is ops.prod_op and self._host:
            (z,) = node.operands
            if are_rows(z.shape, z.dtype, *attrs):
                return self._total(node)
        if op is ops.matmul and self._host and products.are_small(*node.operands):
            return small_products(*[self.node(o) for o in node.operands], 0)
        if op in PRODUCTS:
            return PRODUCTS[op](*[self._factor(o) for o in node.operands], *attrs)
        operands = [self._operand(o) for o in node.operands]
        formula: Callable[..., Any] | None = FORMULAS.get(op) or _FOLDS.get(op)
        if op is ops.scatter and attrs[1] == "mul":
            formula = products.multiply_at
        if formula is None:  # it moves elements, or adds them: both parts alike
            first, second = (op(*[_part(x, i) for x in operands], *attrs) for i in range(2))
            return first, second
        narrow = complex32 in (node.dtype, *[o.dtype for o in node.operands])
        if narrow:  # computed in float32, and rounded once
            operands = [_each(x, to_accumulator) for x in operands]
        found: Part = formula(*operands, *attrs)
        return _each(found, lambda x: as_dtype(x, node.dtype.to_real())) if narrow else found

    def _total(self, node: Node) -> Node:
        """A product along the last axes, by a routine that reads memory once."""
        (z,), (axes,) = node.operands, node.attrs
        rows = (*z.shape[: z.rank - len(axes)], math.prod(z.shape[a] for a in axes))
        return ops.reshape(total_product(ops.reshape(self.node(z), rows), 0), node.shape)

    def _operand(self, node: Node) -> Part:
        return self._parts[node] if node.dtype.is_complex else self._real[node]

    def _factor(self, node: Node) -> Factor:
        return Factor(self._parts[node], lambda: self.node(node))


def _each(x: Part, function: Callable[[Node], Node]) -> Part:
    return function(x) if isinstance(x, Node) else (function(x[0]), function(x[1]))


def _part(x: Part, i: int) -> Node:
    return x if isinstance(x, Node) else x[i]


_FOLDS: dict[Op, Callable[..., Any]] = {
    ops.prod_op: products.prod,
    ops.cumprod_op: products.cumprod,
}

_IN_MEMORY = (Kind.LEAF, Kind.HOST, Kind.LOOP, Kind.EXTERNAL, Kind.TRANSFER)
