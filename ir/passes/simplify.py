"""Algebra: rules that make a graph smaller without changing a bit of its values.

Only identities that hold for NaN, infinities and signed zeros are here. A sum may have its terms in
another order (`product_with_one_number`), as it may on every engine.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .. import ops
from ..dtype import COMPLEX, FLOAT, FLOAT8, accumulator
from ..node import Node
from ..op import Kind
from ..ops.composite import as_dtype
from ..ops.unary import cast, widened
from ..reference import evaluate
from ..rewrite import on


def splat(node: Node) -> Any:
    """The value that all elements of `node` share, or None."""
    while len(node.operands) == 1 and node.op.kind is Kind.MOVEMENT:
        node = node.operands[0]
    return ops.constant_value(node) if node.op.kind is Kind.CONSTANT else None


def _fill(value: Any, like: Node) -> Node:
    return ops.expand(ops.constant(value, like.dtype, like.device), like.shape)


@on(Kind.ELEMENTWISE)
def fold_constants(node: Node) -> Node | None:
    """An elementwise op on constants is a constant, if all engines agree on its value."""
    if node.op.error > 0.5 and node.dtype.is_differentiable:
        return None
    values = []
    for operand in node.operands:
        value = splat(operand)
        if value is None:
            return None
        values.append(value)
    with np.errstate(all="ignore"):
        return _fill(evaluate(node, [np.asarray(v) for v in values]), node)


@on(ops.mul, ops.div, ops.add, ops.sub)
def fold_identity_arithmetic(node: Node) -> Node | None:
    """x * 1, x / 1, x - 0, x + -0.0, and for integers x + 0."""
    op = node.op
    if node.dtype.category == COMPLEX:  # (inf + 0i) * 1 has a NaN
        return None
    a, b = node.operands
    for x, other, right in ((a, b, True), (b, a, False)):
        if x.shape != node.shape or not (right or op.commutative):
            continue
        value = splat(other)
        if value is None:
            continue
        if op is ops.mul or op is ops.div:
            neutral = value == 1
        elif node.dtype.category != FLOAT:
            neutral = value == 0
        else:
            negative = math.copysign(1.0, float(value)) < 0
            neutral = value == 0 and (negative == (op is ops.add))
        if neutral:
            return x
    return None


@on(cast, widened)
def fold_casts(node: Node) -> Node | None:
    """A cast to the same dtype vanishes; `widened` becomes a cast."""
    if node.op is widened:
        return cast(node.operands[0], node.dtype)
    return node.operands[0] if node.operands[0].dtype is node.dtype else None


@on(ops.neg, ops.add, ops.sub)
def fold_negations(node: Node) -> Node | None:
    """--x is x; a + -b is a - b; a - -b is a + b."""
    op = node.op
    if op is ops.neg and node.operands[0].op is op:
        return node.operands[0].operands[0]
    if op is not ops.neg and node.operands[1].op is ops.neg:
        a, b = node.operands[0], node.operands[1].operands[0]
        return a - b if op is ops.add else a + b
    return None


@on(ops.where)
def fold_where(node: Node) -> Node | None:
    """A where with a known condition is one of its branches."""
    condition = splat(node.operands[0])
    if condition is None:
        return None
    return ops.expand(node.operands[1 if condition else 2], node.shape)


@on(ops.reshape_op, ops.permute_op, ops.expand_op)
def merge_movement(node: Node) -> Node | None:
    """reshape of reshape, permute of permute, expand of expand, and each that changes nothing."""
    op = node.op
    inner = node.operands[0]
    if op is ops.permute_op:
        if node.attrs[0] == tuple(range(node.rank)):
            return inner
        if inner.op is op:
            return ops.permute(inner.operands[0], [inner.attrs[0][i] for i in node.attrs[0]])
        return None
    if node.shape == inner.shape:
        return inner
    if inner.op is op:
        build = ops.reshape if op is ops.reshape_op else ops.expand
        return build(inner.operands[0], node.shape)
    return None


@on(ops.slice_op, ops.pad_op)
def merge_regions(node: Node) -> Node | None:
    """slice of slice, and pad of pad with one value."""
    op = node.op
    if node.operands[0].op is not op:
        return None
    inner = node.operands[0]
    if op is ops.slice_op:
        inner_starts, _, inner_steps = inner.attrs
        starts, stops, steps = [], [], []
        for size, a, _, s, first, step in zip(
            node.shape, *node.attrs, inner_starts, inner_steps, strict=True
        ):
            starts.append(first + a * step)
            steps.append(s * step)
            stops.append(starts[-1] + (size - 1) * steps[-1] + 1 if size else starts[-1])
        return ops.slice_(inner.operands[0], starts, stops, steps)
    if node.operands[1] is not inner.operands[1]:
        return None
    sides = list(zip(*inner.attrs, *node.attrs, strict=True))
    if any(min(side) < 0 or (side[5] and any(side[:3])) for side in sides):
        return None
    low, high, interior = zip(*((a + d, b + e, c + f) for a, b, c, d, e, f in sides), strict=True)
    return ops.pad(inner.operands[0], low, high, interior, node.operands[1])


@on(ops.slice_op)
def slice_of_joined(node: Node) -> Node | None:
    """A slice of tensors one after another that lies in one of them."""
    (joined,) = node.operands
    if joined.op is not ops.cat_op or 0 in node.shape:
        return None
    (axis,) = joined.attrs
    starts, stops, steps = ([*bounds] for bounds in node.attrs)
    for part in joined.operands:
        size = part.shape[axis]
        if starts[axis] < size:
            if stops[axis] > size:
                return None
            return ops.slice_(part, starts, stops, steps)
        starts[axis], stops[axis] = starts[axis] - size, stops[axis] - size
    return None


@on(ops.rfft_op)
def transform_of_parts(node: Node) -> Node | None:
    """The transform of the real parts of complex numbers reads them where they are."""
    x = node.operands[0]
    return node.op(*x.operands, *node.attrs) if x.op is ops.real else None


@on(ops.sum_op)
def sum_of_broadcast(node: Node) -> Node | None:
    """A sum over copies of one element is a product (for integers and exact counts of floats)."""
    if node.operands[0].op is not ops.expand_op:
        return None
    if node.dtype.category == COMPLEX:
        return None
    (axes,) = node.attrs
    wide, source = node.operands[0], node.operands[0].operands[0]
    lead = wide.rank - source.rank
    copied = [a for a in axes if a < lead or source.shape[a - lead] == 1]
    count: int = math.prod(wide.shape[a] for a in copied)
    if not copied or len(copied) != len(axes) or count >= 1 << 24:
        return None
    kept = [1 if a in axes else s for a, s in enumerate(wide.shape)]
    base = ops.reshape(source, (1,) * lead + tuple(source.shape))
    return ops.expand(base, kept) * count


@on(ops.matmul, ops.matmul_wide)
def product_with_one_number(node: Node) -> Node | None:
    """A product with a matrix that has one number everywhere is a sum of the other one's rows or
    columns. The cotangent of a result whose elements are added up is such a matrix."""
    a, b = node.operands
    if a.dtype.category != FLOAT or a.dtype in FLOAT8:
        return None
    for copies, other, axis in ((a, b, b.rank - 2), (b, a, a.rank - 1)):
        number = splat(copies)
        if number is not None:
            terms = as_dtype(other, accumulator(other.dtype)) * float(number)
            return ops.expand(as_dtype(ops.sum(terms, (axis,)), node.dtype), node.shape)
    return None


@on(ops.matmul, ops.matmul_wide)
def product_of_copies(node: Node) -> Node | None:
    """A product whose rows, columns or matrices repeat is made once. Rows of several axes, which
    were made one, may repeat along some of them."""
    a, b = node.operands
    if 0 in node.shape or 0 in a.shape:
        return None
    if a.op is ops.reshape_op and b.rank == 2 and a.operands[0].shape[-1:] == a.shape[-1:]:
        whole = a.operands[0]
        some = _first(whole, whole.rank, _alike(whole, whole.rank) - {whole.rank - 1})
        if some is not whole:
            once = node.op(ops.reshape(some, (-1, a.shape[-1])), b)
            apart = ops.reshape(once, (*some.shape[:-1], b.shape[-1]))
            return ops.reshape(ops.expand(apart, (*whole.shape[:-1], b.shape[-1])), node.shape)
    rows, columns = node.rank - 2, node.rank - 1
    alike_a, alike_b = _alike(a, node.rank), _alike(b, node.rank)
    alike = (alike_a & alike_b - {rows, columns}) | (alike_a & {rows}) | (alike_b & {columns})
    if all(node.shape[axis] == 1 for axis in alike):
        return None
    once = node.op(_first(a, node.rank, alike - {columns}), _first(b, node.rank, alike - {rows}))
    return ops.expand(once, node.shape)


@on(ops.gather)
def read_of_nothing(node: Node) -> Node | None:
    """A read from a tensor without elements reads no memory: its check raises the error."""
    if 0 not in node.operands[0].shape or 0 in node.shape:
        return None
    x, *indices = node.operands
    axis = node.attrs[0]
    at = next(i for i in range(len(indices)) if x.shape[axis + i] == 0)
    found = ops.check(indices[at], 0, axis + at, "position")
    behind = x.rank - axis - len(indices)
    found = ops.reshape(found, (*found.shape, *[1] * behind))
    return ops.expand(ops.cast(found, node.dtype), node.shape)


def _alike(node: Node, rank: int) -> set[int]:
    """The axes of a tensor of `rank`, to which `node` is broadcast, along which it repeats."""
    source = node.operands[0] if node.op is ops.expand_op else node
    lead = rank - source.rank
    return {axis for axis in range(rank) if axis < lead or source.shape[axis - lead] == 1}


def _first(node: Node, rank: int, alike: set[int]) -> Node:
    """The part of `node` of which copies along `alike` are made."""
    lead = rank - node.rank
    kept = [1 if lead + axis in alike else size for axis, size in enumerate(node.shape)]
    if kept == list(node.shape):
        return node
    source = node.operands[0]
    ones = (1,) * (node.rank - source.rank)
    return ops.expand(ops.reshape(source, (*ones, *source.shape)), kept)


RULES = (
    fold_constants,
    fold_casts,
    fold_identity_arithmetic,
    fold_negations,
    fold_where,
    merge_movement,
    merge_regions,
    slice_of_joined,
    transform_of_parts,
    sum_of_broadcast,
    product_with_one_number,
    product_of_copies,
    read_of_nothing,
)
