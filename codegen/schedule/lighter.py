"""The next schedules of kernels that spill: with more registers for a thread, or fewer elements."""

from __future__ import annotations

from dataclasses import replace

from ..chip import Chip
from ..kernel import Kernel
from .roofline import Usage
from .rows import runs_along_parallel
from .schedule import DOT_MIN, Schedule, points

_WARPS = 16  # with more a thread may have only 64 registers
_VECTOR = 4  # elements of a thread: 16 bytes of float32
_SIDE = 16  # of a rectangle
_COLUMNS = 32  # neighbours that are read together: 64 bytes of halves


_GRANULE = 8  # registers of a thread


def roomier(schedule: Schedule, usage: Usage, chip: Chip) -> Schedule | None:
    """`schedule` with more registers than its compiled kernel took; None if a thread can't have
    more. An assembler spills a little of its own accord, so that one more program fits a
    multiprocessor, unless it is told how many registers a thread may have."""
    threads = schedule.num_warps * chip.warp
    if not chip.limits or schedule.specialized:
        return None
    for programs in range(chip.registers // (threads * max(usage.registers, 1)), 0, -1):
        most = min(chip.registers_each, chip.registers // (threads * programs))
        if most // _GRANULE * _GRANULE > usage.registers:
            return replace(schedule, registers=most // _GRANULE * _GRANULE)
    return None


def lighter(kernel: Kernel, schedule: Schedule, warp: int) -> Schedule | None:
    """The next schedule, mostly with half as many elements for a thread; None if there is none.

    Attention takes fewer of the other side's rows at a time, folds of rows and their columns fewer
    rows or more warps, and a rectangle becomes shorter. A row that stays in registers gets more
    warps, one that is walked along shorter steps, but first a program fewer columns, and fewer rows
    where a step is a single element; a map has smaller blocks. Networks that sort and updates whose
    positions are data stay as they are: they hold few elements.
    """
    if kernel.is_crossed and schedule.block > 1:
        return replace(schedule, block=schedule.block // 2)
    if kernel.is_crossed:
        more = schedule.num_warps < _WARPS
        return replace(schedule, num_warps=2 * schedule.num_warps) if more else None
    if kernel.is_chained:
        for side in ("block_n", "block_m"):
            if getattr(schedule, side) > DOT_MIN:
                return replace(schedule, **{side: getattr(schedule, side) // 2})
        return None
    if kernel.ordered or kernel.is_update:
        return None
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
    side_by_side = schedule.block > _COLUMNS and schedule.looped and runs_along_parallel(kernel)
    if side_by_side or schedule.block_r == 1:
        return replace(schedule, block=schedule.block // 2)
    step = schedule.block_r // 2
    return replace(schedule, block_r=step, looped=step < points(kernel.reduction))
