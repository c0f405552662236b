"""Sums of products, computed as products of stacks of matrices."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tilewright.ir.dtype import int32
from tilewright.ir.ops.quantized import BYTES, exact_floats

from ..kernel import Dot
from .emission import Context, Emission, common, np_name
from .fold import dimensions
from .grouped import grouped_dot
from .layout import Layout, plan
from .overlap import overlap_added
from .product import index_range, multiply, operand, sliced, transposed, unfolded
from .program import Array, Program, Statement


def dot(e: Emission, value: Dot, context: Context) -> Array:
    domain = context.domain
    if value.a.dtype in BYTES and value.b.dtype in BYTES and value.dtype is int32:
        # NumPy has no library for integers. Sums of so few bits are exact in floats.
        wide = exact_floats(math.prod(a.extent for a in value.over))
        found = dot(e, replace(value, dtype=wide), context)
        return e.cast(e.cast(found, np.dtype(np.int64)), value.dtype.np)
    wanted = value.dtype.np
    a, b = (e.cast(e.of(v, context), wanted) for v in (value.a, value.b))
    one = (1,) * domain.rank
    a, b = (x if x.extent else e.broadcast(x, one) for x in (a, b))
    if value.scales:
        a, b = (_scaled(e, x, e.of(s, context)) for x, s in zip((a, b), value.scales))
    e.program.may_warn |= wanted.kind == "f"
    # An axis that only one operand has is summed in it; one that neither has gives a factor.
    over = dimensions(value.over, domain)
    if value.segment is not None:
        return grouped_dot(e, a, b, over, value.segment, context)
    kept = [d for d in range(domain.rank) if d not in over]
    added = overlap_added(e, a, b, over, domain, _stored_order(e, kept, context))
    if added is not None:
        return added
    factor = 1
    inner = []
    for d in over:
        if a.extent[d] == b.extent[d] == 1:
            factor *= domain.shape[d]
        elif a.extent[d] == 1:
            b = _summed(e, b, d)
        elif b.extent[d] == 1:
            a = _summed(e, a, d)
        else:
            inner.append(d)
    kept = [d for d in range(domain.rank) if d not in inner]
    layout = plan(a, b, inner, _stored_order(e, kept, context))
    out = _looped(e, a, b, layout) if layout.loop is not None else _product(e, a, b, layout)
    if factor != 1:
        call = f"np.multiply({out.name}, {e.argument('n', wanted.type(factor))})"
        out = e.let(call, wanted, out.extent, (out,), ufunc=True)
    return out


def _scaled(e: Emission, array: Array, scale: Array) -> Array:
    call = f"np.multiply({array.name}, {scale.name})"
    extent = common((array, scale))
    return e.let(call, array.dtype, extent, (array, scale), stem="scaled_", ufunc=True)


def _summed(e: Emission, array: Array, d: int) -> Array:
    extent = tuple(1 if i == d else n for i, n in enumerate(array.extent))
    kind = np_name(array.dtype)
    call = f"np.add.reduce({array.name}, axis={d}, keepdims=True, dtype={kind})"
    return e.let(call, array.dtype, extent, (array,), stem="sum_")


def _stored_order(e: Emission, kept: list[int], context: Context) -> list[int]:
    """The dimensions of the result, from slow to fast, in the order of the kernel's first store."""
    if context.domain is not e.root:
        return kept
    index = e.root.rewrite(e.kernel.stores[0].offset)
    strides = dict.fromkeys(range(e.root.rank), 0)
    for atom, coefficient in index.terms:
        if atom in e.root.axes:
            strides[e.root.axes.index(atom)] = abs(coefficient)
    # A dimension that the store does not mention varies slowest.
    return sorted(kept, key=lambda d: -(strides[d] or math.inf))


def _extent(a: Array, b: Array, inner: Sequence[int]) -> tuple[int, ...]:
    """The shape of the result."""
    return tuple(
        1 if d in inner else n if m == 1 else m for d, (m, n) in enumerate(zip(a.extent, b.extent))
    )


def _product(e: Emission, a: Array, b: Array, layout: Layout) -> Array:
    """The whole product at once."""
    extent = _extent(a, b, layout.inner)
    x, y = (b, a) if layout.flipped else (a, b)
    first, second = operand(e, x, layout, True), operand(e, y, layout, False)
    out = multiply(e, first, second, layout)
    return unfolded(e, out, extent, layout)


def _looped(e: Emission, a: Array, b: Array, layout: Layout) -> Array:
    """The product step by step along one dimension, so that copies stay in cache."""
    d = layout.loop
    assert d is not None
    extent = _extent(a, b, layout.inner)
    size = max(a.extent[d], b.extent[d])
    i, step, stop = e.fresh("i"), e.argument("n", layout.step), e.argument("n", size)
    outer, e.program = e.program, Program()
    fixed: dict[bool, Array] = {}
    parts = []
    for at, array in enumerate((a, b)):
        if array.extent[d] == 1:
            parts.append(array)
            e.program, held = outer, e.program
            is_first = (at == 0) != layout.flipped
            fixed[is_first] = operand(e, array, layout, is_first)
            e.program = held
        else:
            parts.append(sliced(e, array, d, i, step, layout.step))
    first = fixed.get(True) or operand(e, parts[int(layout.flipped)], layout, True)
    second = fixed.get(False) or operand(e, parts[1 - int(layout.flipped)], layout, False)
    result = multiply(e, first, second, layout)
    order = [*layout.stack, *layout.left, *layout.right]
    kind = np_name(a.dtype)
    if d in layout.inner:
        e.program, body = outer, e.program
        shape = e.argument("shape", result.extent)
        total = e.let(f"np.zeros({shape}, {kind})", a.dtype, result.extent, stem="dot_")
        body.add(Statement(f"{total.name} += {result.name}", None, (result,)))
    elif d in layout.stack:
        full = tuple(size if s == d else n for s, n in zip((*layout.stack, -1, -1), result.extent))
        e.program, body = outer, e.program
        shape = e.argument("shape", full)
        total = e.let(f"np.empty({shape}, {kind})", a.dtype, full, stem="dot_")
        place = f"{total.name}[{index_range(layout.stack.index(d), i, step)}]"
        body.statements[-1].out = replace(total, name=place)
    else:
        part_extent = _extent(parts[0], parts[1], layout.inner)
        part = unfolded(e, result, part_extent, layout)
        e.program, body = outer, e.program
        rest = [x for x in range(len(extent)) if x not in order]
        shape = e.argument("shape", tuple(extent[x] for x in (*order, *rest)))
        call = f"np.empty({shape}, {kind})" + transposed(
            [[*order, *rest].index(x) for x in range(len(extent))]
        )
        total = e.let(call, a.dtype, extent, stem="dot_")
        body.add(Statement(f"{total.name}[{index_range(d, i, step)}] = {part.name}", None, ()))
    lines = "".join(f"\n    {line}" for line in body.lines())
    loop = f"for {i} in range(0, {stop}, {step}):{lines}"
    e.program.add(Statement(loop, None, (a, b, total, *fixed.values()), writes=total))
    if d in layout.inner or d in layout.stack:
        return unfolded(e, total, extent, layout)
    return total
