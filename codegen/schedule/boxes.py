"""Schedules of convolutions whose tiles are boxes of places, which hardware copies."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

from tilewright.ir.dtype import float32

from ..kernel import Dot, Kernel
from ..kernel.analysis import analyzed
from ..kernel.box import box, slides, tiles
from ..kernel.roles import Roles, roles
from ..target import Target
from .schedule import DOT_MIN, Schedule, points, power_of_two

_LONGEST = 256  # positions of a tile along one dimension, by hardware
_PLACES = 1 << 30  # whose positions have 32 bits
_SIDES = (64, 128, 256)  # places of a tile
_DEPTHS = (128, 64, 32, 16)
_ROW, _NEAR = 8, 64
"""Places of a row of a box, and of a box in one image, at least, if there are so many. An H100
copies longer rows no faster, shorter ones slower by far (`roofline.py`), and more images by a
tenth."""


def has_boxes(kernel: Kernel, target: Target) -> bool:
    """Whether a kernel is a convolution whose operands are all boxes in memory, with enough
    channels for the rows of tensor cores. One of a single tap reads matrices."""
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    dtype = dots[0].input_dtype
    fed = dtype.itemsize == 2 or (dtype is float32 and target.rounds(dots[0].fast))
    if not target.chip.tensor_maps or not fed or kernel.columns:
        return False
    role = roles(kernel, analyzed(kernel), dots[0])
    if not 2 <= len(role.m) <= 4 or points(role.m) > _PLACES or not depths(role):
        return False
    if points(role.n) < target.chip.rows:
        return False
    images = [box(dot, role, "m") for dot in dots]
    weights = [box(dot, role, "n") for dot in dots]
    return None not in weights and all(i is not None and slides(i) for i in images)


def depths(role: Roles) -> list[int]:
    """The lengths of a step along K that stay within a tap of the window."""
    return [k for k in _DEPTHS if role.k and role.k[-1].extent % k == 0]


def shape(role: Roles, places: int) -> tuple[int, ...]:
    """The lengths of a box of so many places with which the fewest cover all places; of equals the
    one with the longest rows. Between images and rows of an image lies one place."""
    extents = [axis.extent for axis in role.m]
    free = [extents[-1], extents[-2], *extents[: len(extents) > 2]]
    most = [min(power_of_two(n), _LONGEST) for n in free]
    near = min(_NEAR, places, most[0] * most[1]) if len(free) > 2 else 1
    found = []
    for width, height in itertools.product(_powers(most[0]), _powers(most[1])):
        images = places // (width * height)
        if images * width * height != places or images > (most[2] if len(free) > 2 else 1):
            continue
        if width < min(_ROW, most[0]) or width * height < near:
            continue
        between = (1,) * (len(extents) - 3)
        lengths = ((images, *between) if len(free) > 2 else ()) + (height, width)
        found.append((tiles(lengths, role.m), -width, -height, lengths))
    return min(found)[-1] if found else ()


def boxed(kernel: Kernel, schedule: Schedule) -> Schedule | None:
    """`schedule` with the places and channels of its tile exchanged, since the image is the second
    factor; None if there is no such box."""
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analyzed(kernel), dot)
    lengths = shape(role, schedule.block_n)
    if not lengths or schedule.block_n not in _SIDES:
        return None
    block_k = max(k for k in depths(role) if k <= max(schedule.block_k, DOT_MIN))
    return replace(
        schedule, block_m=schedule.block_n, block_n=schedule.block_m, block_k=block_k, box=lengths
    )


def shapes(kernel: Kernel) -> list[tuple[int, ...]]:
    """The boxes that a convolution may have."""
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analyzed(kernel), dot)
    return [found for found in (shape(role, places) for places in _SIDES) if found]


def _powers(most: int) -> Iterator[int]:
    return (1 << i for i in range(most.bit_length()))
