"""Guards whose conditions hold in a box: their inside is computed in the box only.

The conditions of a padding are on sums like o * stride + k - low, the position in the padded input.
These sums become axes of their own. Over them the padded input is an array: it is filled with the
outside value, and its valid part is assigned. Over the kernel's axes it is then a view of strided
windows. With a single axis in each condition the padded array is the value itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..kernel import ALONG, Condition, Constant, Dot, Guard, Reduce, Value
from ..kernel.index import Axis, FloorDiv, Index, Mod
from .domain import Domain, NotExpressible, Relation, has_data, rewrite, tabulate
from .emission import Context, Emission, common, everything, np_name
from .program import Array, Statement


@dataclass(frozen=True)
class Side:
    """One direction of the box: low + i, 0 <= i < size. Conditions hold at start, start + step,
    …"""

    direction: dict[Axis, int]
    low: int
    size: int
    start: int
    step: int
    count: int


@dataclass(frozen=True)
class Windows:
    """The source of a view of windows over zeros: the array in the box, and its sides."""

    inside: Array
    sides: tuple[Side, ...]


def in_region(e: Emission, value: Guard, context: Context) -> Array | None:
    """The guarded value, or None if its conditions or its inside have another form."""
    domain = context.domain
    sides = _sides(value.conditions, domain)
    if sides is None:
        return None
    outside = e.of(value.outside, context)
    if any(s.count == 0 for s in sides):
        return outside
    if not sides:
        return e.evaluate(value.inside, context)
    inner = e.box(domain, tuple((s.direction, s.low + s.start, s.step, s.count) for s in sides))
    windowed = [s for s in sides if len(s.direction) > 1]
    places = {domain.axes.index(a) for s in windowed for a in s.direction}
    if any(outside.extent and outside.extent[d] != 1 for d in places):
        return None
    if not _expressible(value.inside, inner, {a for s in sides for a in s.direction}, domain):
        return None
    if context.mask is not None and e.reads_data(value.inside):
        return None  # the mask covers the whole domain
    inside = e.evaluate(value.inside, Context(inner))
    return _windows(e, value, domain, sides, inside, outside)


def _sides(conditions: tuple[Condition, ...], domain: Domain) -> list[Side] | None:
    groups: dict[frozenset[Axis], tuple[dict[Axis, int], list[tuple[Index, Condition]]]] = {}
    for condition in conditions:
        index = domain.rewrite(condition.index)
        low, high = index.bounds()
        if condition.low <= low and high < condition.high:
            continue
        direction = _direction(index)
        if direction is None:
            return None
        key = frozenset(direction)
        known = groups.setdefault(key, (direction, []))
        if known[0] != direction:
            return None
        known[1].append((index, condition))
    if sum(map(len, groups)) != len(frozenset().union(*groups)):
        return None
    sides = [_side(direction, asked) for direction, asked in groups.values()]
    return None if None in sides else [s for s in sides if s is not None]


def _direction(index: Index) -> dict[Axis, int] | None:
    """The one sum of axes on which `index` depends, without a common factor."""
    if has_data(index):
        return None
    terms = index.terms
    if len(terms) == 1 and isinstance(terms[0][0], (FloorDiv, Mod)):
        return _direction(terms[0][0].index)
    if not terms or not index.is_affine:
        return None
    # In the order of names, so that a sum is recognized in any spelling.
    found = {a: c for a, c in sorted(terms, key=lambda t: str(t[0])) if isinstance(a, Axis)}
    common_factor = math.gcd(*found.values())
    if next(iter(found.values())) < 0:
        common_factor = -common_factor
    return {a: c // common_factor for a, c in found.items()}


def _side(direction: dict[Axis, int], asked: list[tuple[Index, Condition]]) -> Side | None:
    low, high = Index(tuple(direction.items())).bounds()
    size = high - low + 1
    along = Axis("_along", size)
    line = Domain((along,), {})
    holds = np.ones(size, dtype=bool)
    for index, condition in asked:
        try:
            table = tabulate(rewrite(index, (Relation(direction, along, low),)), line)
        except NotExpressible:
            return None
        holds &= (table >= condition.low) & (table < condition.high)
    found = np.flatnonzero(holds)
    if len(found) == 0:
        return Side(direction, low, size, 0, 1, 0)
    step = int(found[1] - found[0]) if len(found) > 1 else 1
    if (np.diff(found) != step).any():
        return None
    return Side(direction, low, size, int(found[0]), step, len(found))


def _expressible(root: Value, inner: Domain, replaced: set[Axis], outer: Domain) -> bool:
    """Whether all that `root` is computed from can be computed over the box."""
    places = {outer.axes.index(a) for a in replaced}
    for value in everything(root):
        folded: tuple[Axis, ...] = ()
        if isinstance(value, (Reduce, Dot)):
            folded = value.over
        elif isinstance(value, ALONG):
            folded = (value.along,)
        if any(outer.origin.get(a) in places for a in folded):
            return False
        try:
            for index in value.indices():
                inner.rewrite(index)
        except NotExpressible:
            return False
    return True


def _windows(
    e: Emission, value: Guard, domain: Domain, sides: list[Side], inside: Array, outside: Array
) -> Array:
    dtype = value.dtype.np
    box = list(common((inside, outside)) or (1,) * domain.rank)
    region = [slice(None)] * domain.rank
    for side in sides:
        place, *others = (domain.axes.index(a) for a in side.direction)
        box[place] = side.size
        for other in others:
            box[other] = 1
        stop = side.start + (side.count - 1) * side.step + 1
        region[place] = slice(side.start, stop, side.step if side.step > 1 else None)
    base, padded, strides = _allocated(e, value, box, inside, outside)
    place_name = e.argument("region", tuple(region), str(region))
    call = f"{padded.name}[{place_name}] = {inside.name}"
    e.program.add(Statement(call, None, (inside, padded), writes=padded))
    if all(len(s.direction) == 1 for s in sides):
        return padded
    start = 0
    for side in sides:
        places = [domain.axes.index(a) for a in side.direction]
        unit = strides[places[0]]
        start -= side.low * unit
        for axis, d in zip(side.direction, places):
            box[d] = axis.extent
            strides[d] = side.direction[axis] * unit
    extent, known = tuple(box), tuple(strides)
    steps = e.argument("strides", tuple(s * dtype.itemsize for s in strides))
    call = (
        f"np.ndarray({e.argument('shape', extent)}, {np_name(dtype)}, {base.name}, "
        f"{e.argument('n', start * dtype.itemsize)}, {steps})"
    )
    view = e.let(call, dtype, extent, (base,), alias=base, stem="window_")
    out = replace(view, owned=False, strides=known)
    if is_zero(value.outside):
        e.windows[out.name] = Windows(inside, tuple(sides))
    return out


def is_zero(value: Value) -> bool:
    """Whether a value is the constant 0 (not -0)."""
    return isinstance(value, Constant) and not any(np.asarray(value.value).tobytes())


def _allocated(
    e: Emission, value: Guard, box: list[int], inside: Array, outside: Array
) -> tuple[Array, Array, list[int]]:
    """An array of shape `box` filled with the outside value, in the memory order of `inside`: its
    memory, its view in the order of the domain, and the view's strides in elements."""
    dtype = value.dtype.np
    order = list(range(len(box)))
    if inside.strides is not None:
        known = inside.strides
        order.sort(key=lambda d: -abs(known[d]) if known[d] else -math.inf)
    strides, step = [0] * len(box), 1
    for d in reversed(order):
        strides[d] = step if box[d] != 1 else 0
        step *= box[d]
    extent = tuple(box[d] for d in order)
    shape, kind = e.argument("shape", extent), np_name(dtype)
    made = "zeros" if is_zero(value.outside) else "empty"
    base = e.let(f"np.{made}({shape}, {kind})", dtype, extent, stem="padded_")
    padded = base
    if order != sorted(order):
        back = tuple(order.index(d) for d in range(len(box)))
        call = f"{base.name}.transpose({back})"
        padded = e.let(call, dtype, tuple(box), (base,), alias=base, stem="padded_")
    padded = replace(padded, strides=tuple(strides))
    if made == "empty":
        call = f"{padded.name}[...] = {outside.name}"
        e.program.add(Statement(call, None, (outside, padded), writes=padded))
    return base, padded, strides
