"""Operands of convolutions as boxes in memory: hardware copies tiles of an image with zeros around
it, so that a step takes neither addresses nor masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tilewright.ir.dtype import FLOAT8

from . import index as ix
from .index import Axis, Index
from .ir import Buffer, Condition, Constant, Dot, Guard, Load, Store, Value
from .matrix import ALIGNMENT
from .roles import Roles

_RANK = 5
"""The most dimensions that the hardware knows."""


@dataclass(frozen=True, slots=True)
class Side:
    """A dimension of memory that an operand reads: of `extent` positions, `stride` elements apart.

    axes: those along which a tile runs through it. start: the position of a tile that begins at
    these axes' values; beyond the dimension's ends there are zeros.
    """

    axes: tuple[Axis, ...]
    start: Index
    extent: int
    stride: int


@dataclass(frozen=True, slots=True)
class Box:
    """An operand as a part of memory of several dimensions, the outermost one first."""

    buffer: Buffer
    sides: tuple[Side, ...]


def box(dot: Dot, role: Roles, side: str) -> Box | None:
    """The operand that has `side` (m or n) as a dimension, for tiles that run along each axis of m
    by itself, along n as one axis, and along the last axis of k; None unless it is a box in memory,
    in the type it is multiplied in, whose elements are neighbours along the last of them."""
    value = dot.a if side == "m" else dot.b
    conditions, load = _loaded(value)
    if load is None or load.buffer.dtype is not dot.input_dtype or load.buffer.dtype in FLOAT8:
        return None
    if role.batch or role.group is not None or not role.k or not load.offset.is_affine:
        return None
    runs = [(axis,) for axis in role.m] if side == "m" else [role.n]
    return _copied(load.buffer, _sides(load.offset, conditions, [*runs, role.k[-1:]]))


def stored(store: Store, role: Roles) -> Box | None:
    """The result that a store fills, for tiles that run along each axis of m by itself and along n
    as one axis; None unless it is a box in memory whose elements are neighbours along n."""
    dtype = store.buffer.dtype
    if store.mode is not None or not store.offset.is_affine or dtype in FLOAT8:
        return None
    if not dtype.is_floating_point or store.offset.axes() - {*role.m, *role.n}:
        return None
    found = _copied(store.buffer, _sides(store.offset, (), [*((a,) for a in role.m), role.n]))
    return found if found is not None and found.sides[-1].axes == role.n else None


def _copied(buffer: Buffer, sides: Sequence[Side] | None) -> Box | None:
    """The box with these sides, if hardware copies tiles of it."""
    if not sides:
        return None
    *outer, inner = sorted(sides, key=lambda each: -each.stride)
    if inner.stride != 1 or not 1 <= len(outer) < _RANK:
        return None
    if any(each.stride * buffer.dtype.itemsize % ALIGNMENT for each in outer):
        return None
    last = sum(each.stride * (each.extent - 1) for each in (*outer, inner))
    return Box(buffer, (*outer, inner)) if last < buffer.size else None


def slides(found: Box) -> bool:
    """Whether a sum reads the places around a tile, as the taps of a window do."""
    return any(each.start.axes() - set(each.axes) for each in found.sides)


def _loaded(value: Value) -> tuple[tuple[Condition, ...], Load | None]:
    """The load of an operand that is 0 elsewhere, and where it is made."""
    conditions: tuple[Condition, ...] = ()
    if isinstance(value, Guard):
        outside, conditions, value = value.outside, value.conditions, value.inside
        if not isinstance(outside, Constant) or outside.value:
            return (), None
    return conditions, value if isinstance(value, Load) else None


def _sides(
    offset: Index, conditions: Sequence[Condition], runs: Sequence[tuple[Axis, ...]]
) -> list[Side] | None:
    """The dimensions of memory that `offset` reads, one for each of `runs`. The other axes, such as
    those of a window, move a tile along the dimension of which they take whole steps."""
    places: list[Index] = []
    strides: list[int] = []
    for axes in runs:
        stride = offset.coefficient(axes[-1]) if axes else 0
        place = ix.ZERO
        for axis in reversed(axes):
            if offset.coefficient(axis) != stride * (place.bounds()[1] + 1):
                return None
            place = place + ix.of(axis) * (place.bounds()[1] + 1)
        if stride <= 0 or stride in strides:
            return None
        places.append(place)
        strides.append(stride)
    for axis in offset.axes() - {axis for axes in runs for axis in axes}:
        step = offset.coefficient(axis)
        stride = _moved(axis, step, conditions, places, strides)
        if not stride:
            return None
        number = strides.index(stride)
        places[number] = places[number] + ix.of(axis) * (step // stride)
    sides = []
    left = list(conditions)
    for place, stride, axes in zip(places, strides, runs):
        low, high = place.bounds()
        start, extent = place - low, high - low + 1
        for each in [c for c in left if c.index - c.index.const == place]:
            left.remove(each)
            start, extent = place + (each.index.const - each.low), each.high - each.low
        sides.append(Side(axes, start, extent, stride))
    if left or sum(each.start.const * each.stride for each in sides) != offset.const:
        return None
    return sides


def _moved(
    axis: Axis,
    step: int,
    conditions: Sequence[Condition],
    places: Sequence[Index],
    strides: Sequence[int],
) -> int:
    """The stride of the dimension along which `axis` moves a tile: that of the place beside it in a
    condition, else the largest one that divides its own step; 0 if there is none."""
    for each in conditions:
        if axis in each.index.axes():
            beside = [s for p, s in zip(places, strides) if p.axes() & each.index.axes()]
            factor = each.index.coefficient(axis)
            return beside[0] if len(beside) == 1 and beside[0] * factor == step else 0
    return max((s for s in strides if step % s == 0), default=0)


def tiles(lengths: Sequence[int], axes: Sequence[Axis]) -> int:
    """The number of boxes of such lengths that cover all points of `axes`."""
    return math.prod(-(-axis.extent // length) for axis, length in zip(axes, lengths, strict=True))
