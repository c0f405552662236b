"""A sum of products over windows of zeros, turned around: products first, then overlapping sums.

The gradient of a convolution in its input reads the output's gradient through windows over zeros
(and, with a stride, between them). As matrices these windows hold every element many times, and
many zeros. Instead each element is multiplied with the whole kernel, and the products are added to
their places, one place of the kernel after another ("col2im").
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from .domain import Domain
from .emission import Emission, np_name
from .layout import Layout, plan
from .product import index_range, multiply, operand, sliced, unfolded
from .program import Array, Program, Statement
from .region import Side, Windows

_AT_ONCE = 1 << 20  # elements of products that stay in cache until they are added


@dataclass(frozen=True)
class _Turn:
    """One direction of the windows: sign * position + kernel offsets = low + start + step * i.

    kept: the dimension of the position, with `extent` positions. kernel: (dimension, coefficient,
    extent) of each offset.
    """

    kept: int
    extent: int
    sign: int
    kernel: tuple[tuple[int, int, int], ...]
    side: Side

    def span(self, offset: int) -> tuple[slice, slice] | None:
        """For one offset, the part of the result that the box covers, and that part of the box."""
        side = self.side
        start = self.sign * (side.low + side.start - offset)
        step = self.sign * side.step
        inside = [i for i in range(side.count) if 0 <= start + step * i < self.extent]
        if not inside:
            return None
        first, last = (start + step * i for i in (inside[0], inside[-1]))
        stop = last + (1 if step > 0 else -1)
        return slice(first, stop if stop >= 0 else None, step), slice(inside[0], inside[-1] + 1)


def overlap_added(
    e: Emission, a: Array, b: Array, over: Sequence[int], domain: Domain, stored: Sequence[int]
) -> Array | None:
    """The dot of `a` and `b` over the dimensions `over`. None if it has another form, or if windows
    are faster. stored: the dimensions kept, from slow to fast in memory."""
    windowed, other = (a, b) if a.name in e.windows else (b, a)
    made: Windows | None = e.windows.get(windowed.name)
    if made is None or any(1 in (a.extent[d], b.extent[d]) for d in over):
        return None
    if len(made.inside.extent) != domain.rank:  # a number
        return None
    turns = [_turn(side, domain, over, other) for side in made.sides]
    if not all(turns):
        return None
    found = [t for t in turns if t is not None]
    kernel = {d for t in found for d, _, _ in t.kernel}
    inner = [d for d in over if d not in kernel]
    columns = math.prod(n for d, n in enumerate(other.extent) if d not in over)
    saves = any(t.side.step > 1 for t in found)
    if not saves and columns > math.prod(other.extent[d] for d in inner):
        return None
    inside = _moved(e, made.inside, found, domain)
    order = [d for d in stored if d not in {t.kept for t in found}]
    order += [*sorted(kernel), *(d for d in stored if d not in order)]
    return _emitted(e, inside, other, found, inner, order, over)


def _turn(side: Side, domain: Domain, over: Sequence[int], other: Array) -> _Turn | None:
    dims = [(domain.axes.index(a), c, a.extent) for a, c in side.direction.items()]
    kept = [d for d in dims if d[0] not in over]
    if len(dims) < 2 or len(kept) != 1:
        return None
    ((place, sign, extent),) = kept
    if abs(sign) != 1 or other.extent[place] != 1:
        return None
    return _Turn(place, extent, sign, tuple(d for d in dims if d[0] in over), side)


def _moved(e: Emission, inside: Array, turns: list[_Turn], domain: Domain) -> Array:
    """The array in the box, with each direction moved to its dimension of the result."""
    order = list(range(domain.rank))
    for turn in turns:
        at = domain.axes.index(next(iter(turn.side.direction)))
        order[at], order[turn.kept] = order[turn.kept], order[at]
    if order == sorted(order):
        return inside
    extent = tuple(inside.extent[d] for d in order)
    call = f"{inside.name}.transpose({tuple(order)})"
    out = e.let(call, inside.dtype, extent, (inside,), alias=inside)
    known = inside.strides
    strides = None if known is None else tuple(known[d] for d in order)
    return replace(out, owned=False, strides=strides)


def _emitted(
    e: Emission,
    inside: Array,
    other: Array,
    turns: list[_Turn],
    inner: list[int],
    order: list[int],
    over: Sequence[int],
) -> Array:
    each = [n if m == 1 else m for m, n in zip(inside.extent, other.extent)]
    for d in inner:
        each[d] = 1
    result = [1 if d in over else n for d, n in enumerate(each)]
    for turn in turns:
        result[turn.kept] = turn.extent
    kind, shape = np_name(inside.dtype), e.argument("shape", tuple(result))
    total = e.let(f"np.zeros({shape}, {kind})", inside.dtype, tuple(result), stem="dot_")
    moves = e.argument("moves", _moves(turns, len(each)))
    loop, step = _steps(inside, other, each, order, turns)
    if loop is None:
        layout = replace(plan(inside, other, inner, order), loop=None)
        products = _products(e, inside, other, layout, each)
        call = f"support.overlap_add({total.name}, {products.name}, {moves})"
        e.program.add(Statement(call, None, (products, total), writes=total))
        return total
    i, count, stop = e.fresh("i"), e.argument("n", step), e.argument("n", each[loop])
    outer, e.program = e.program, Program()
    part = sliced(e, inside, loop, i, count, step)
    each[loop] = step
    layout = replace(plan(part, other, inner, order), loop=None)
    body, e.program = e.program, outer
    fixed = operand(e, other, layout, layout.flipped)
    e.program = body
    products = _products(e, part, other, layout, each, fixed)
    place = index_range(loop, i, count)
    call = f"support.overlap_add({total.name}[{place}], {products.name}, {moves})"
    body.add(Statement(call, None, (products,)))
    e.program = outer
    lines = "".join(f"\n    {line}" for line in body.lines())
    text = f"for {i} in range(0, {stop}, {count}):{lines}"
    e.program.add(Statement(text, None, (inside, fixed, total), writes=total))
    return total


def _products(
    e: Emission,
    inside: Array,
    other: Array,
    layout: Layout,
    extent: list[int],
    fixed: Array | None = None,
) -> Array:
    """Each element times the kernel, an array of the domain."""
    if fixed is None:
        fixed = operand(e, other, layout, layout.flipped)
    moving = operand(e, inside, layout, not layout.flipped)
    first, second = (fixed, moving) if layout.flipped else (moving, fixed)
    return unfolded(e, multiply(e, first, second, layout), tuple(extent), layout)


def _steps(
    inside: Array, other: Array, each: list[int], order: list[int], turns: list[_Turn]
) -> tuple[int | None, int]:
    """The dimension along which to go in steps, and the size of a step."""
    total = math.prod(each)
    apart = {t.kept for t in turns}
    able = [d for d in order if inside.extent[d] > 1 and other.extent[d] == 1 and d not in apart]
    if total < 2 * _AT_ONCE or not able:
        return None, 0
    size = each[able[0]]
    most = max(_AT_ONCE * size // total, 1)
    return able[0], next(s for s in range(min(most, size), 0, -1) if size % s == 0)


Region = tuple[int | slice, ...]


def _moves(turns: list[_Turn], rank: int) -> list[tuple[Region, Region]]:
    """(place in the result, place in the products) for each place of the kernel."""
    out = []
    axes = [(d, n) for t in turns for d, _, n in t.kernel]
    for place in itertools.product(*(range(n) for _, n in axes)):
        at = {d: k for (d, _), k in zip(axes, place)}
        to: list[int | slice] = [slice(None)] * rank
        source: list[int | slice] = [slice(None)] * rank
        for d, k in at.items():
            source[d] = slice(k, k + 1)
        spans = [(t.kept, t.span(sum(c * at[d] for d, c, _ in t.kernel))) for t in turns]
        for kept, span in spans:
            if span is not None:
                to[kept], source[kept] = span
        if all(span is not None for _, span in spans):
            out.append((tuple(to), tuple(source)))
    return out
