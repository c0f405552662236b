"""The places of a row at which guards change, and the lanes that suit what lies in between."""

from __future__ import annotations

from itertools import pairwise

from ..kernel import Condition, Guard, Kernel
from ..kernel.index import Axis

MOST = 8  # the conditions that cut a row


def cutting(kernel: Kernel, axis: Axis) -> tuple[Condition, ...]:
    """The conditions of guards that depend on the place along an axis alone."""
    found: dict[Condition, None] = {}
    for value in kernel.values:
        for c in value.conditions if isinstance(value, Guard) else ():
            low, high = c.index.bounds()
            if c.index.terms == ((axis, 1),) and not (c.low <= low and high < c.high):
                found[c] = None
    return tuple(found) if len(found) <= MOST else ()


def places(kernel: Kernel, axis: Axis) -> list[int]:
    """The places inside of a row where one of its conditions changes."""
    ends = {b - c.index.const for c in cutting(kernel, axis) for b in (c.low, c.high)}
    return sorted(e for e in ends if 0 < e < axis.extent)


def lanes_for(kernel: Kernel, axis: Axis, most: int, least: int) -> int | None:
    """The number of lanes for a row that is computed in pieces; None if most of it lies in pieces
    that are shorter, whose elements are computed one by one."""
    inside = places(kernel, axis)
    if not inside:
        return None
    lengths = [b - a for a, b in pairwise((0, *inside, axis.extent))]
    choices = [most]
    while choices[-1] > least:
        choices.append(choices[-1] // 2)

    def steps(lanes: int) -> float:
        return sum(2 * n if n < lanes else -(-n // lanes) * (lanes / least + 1) for n in lengths)

    lanes = min(choices, key=steps)
    short = sum(n for n in lengths if n < lanes)
    return lanes if 2 * short <= axis.extent else None
