"""Schedules of kernels other than products, made lighter because they spill."""

from __future__ import annotations

from dataclasses import replace

from ..kernel import Kernel
from .rows import runs_along_parallel
from .schedule import DOT_MIN, Schedule, points

_WARPS = 16  # with more a thread may have only 64 registers
_VECTOR = 4  # elements of a thread: 16 bytes of float32
_SIDE = 16  # of a rectangle
_COLUMNS = 32  # neighbours that are read together: 64 bytes of halves


def lighter(kernel: Kernel, schedule: Schedule, warp: int) -> Schedule | None:
    """The next schedule, mostly with half as many elements for a thread; None if there is none.

    Attention takes fewer of the other side's rows at a time, and a rectangle becomes shorter. A
    row that stays in registers gets more warps, one that is walked along shorter steps, but first a
    program fewer columns; a map has smaller blocks. Updates whose positions are data hold few
    elements: a smaller program gets more registers from the assembler. Networks that sort stay as
    they are.
    """
    if kernel.is_chained:
        for side in ("block_n", "block_m"):
            if getattr(schedule, side) > DOT_MIN:
                return replace(schedule, **{side: getattr(schedule, side) // 2})
        return None
    if kernel.ordered:
        return None
    if kernel.is_update:
        few = schedule.num_warps // 2
        return replace(schedule, num_warps=few) if few else None
    if schedule.turned:
        side = "turned" if schedule.turned >= schedule.block else "block"
        length = getattr(schedule, side)
        return replace(schedule, **{side: length // 2}) if length > _SIDE else None
    held = schedule.block * schedule.block_r // (schedule.num_warps * warp)
    if held <= _VECTOR:
        return None
    if not kernel.reduction:
        return replace(schedule, block=schedule.block // 2)
    if not schedule.looped and schedule.num_warps < _WARPS:
        return replace(schedule, num_warps=2 * schedule.num_warps)
    if schedule.block > _COLUMNS and schedule.looped and runs_along_parallel(kernel):
        return replace(schedule, block=schedule.block // 2)
    step = schedule.block_r // 2
    return replace(schedule, block_r=step, looped=step < points(kernel.reduction))
