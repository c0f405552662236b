"""Schedules: how kernels are cut into programs and loops. The defaults follow from shapes alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..kernel import Bundle, Kernel
from ..target import Target
from .attention import attention_schedule
from .cutting import row_tiles
from .dots import ALIKE, dot_schedule
from .lighter import lighter, roomier
from .roofline import Prediction, Usage, Work, occupancy, predict, work
from .rows import (
    columns_schedule,
    merge_schedule,
    pointwise_schedule,
    rows_schedule,
    runs_along_parallel,
    update_schedule,
)
from .schedule import DOT_MIN, Schedule, head_block, points, power_of_two
from .turned import sides


def default_schedule(
    kernel: Kernel | Bundle, target: Target, known: Mapping[Schedule, Usage] | None = None
) -> Schedule:
    """A good schedule from shapes alone. A Bundle's suits its largest member.

    known: what schedules that were compiled use. One that spills is taken with more registers next,
        if threads can have them, unless that didn't help before. Then it takes the place of the
        model's estimates for tiles of products. Other kernels get lighter schedules until one isn't
        known to spill, and where there is none, more registers once again.
    """
    known = known or {}
    limited = any(s.registers and usage.spills for s, usage in known.items())
    if not limited and (more := _roomier(known, target)) is not None:
        return more
    largest = kernel.largest if isinstance(kernel, Bundle) else kernel
    if largest.has_dot and not largest.is_chained:
        return dot_schedule(largest, target, known)
    schedule: Schedule | None = _heaviest(kernel, target)
    while schedule is not None and schedule in known and known[schedule].spills:
        schedule = lighter(largest, schedule, target.chip.warp)
    return schedule or _roomier(known, target) or _best(kernel, target, known)


def _roomier(known: Mapping[Schedule, Usage], target: Target) -> Schedule | None:
    """The first of schedules that spill with more registers, if one isn't compiled yet."""
    found = (roomier(s, usage, target.chip) for s, usage in known.items() if usage.spills)
    return next((s for s in found if s is not None and s not in known), None)


def _best(kernel: Kernel | Bundle, target: Target, known: Mapping[Schedule, Usage]) -> Schedule:
    """The one of schedules that were compiled which spills the least, of those that take the least
    time. One that doesn't spill may take somewhat longer."""
    seconds = {s: predict(kernel, s, target, usage).seconds for s, usage in known.items()}
    least = min(seconds.values())

    def rank(schedule: Schedule) -> tuple[bool, int, float]:
        spills = known[schedule].spills
        most = (ALIKE if spills else _UNSPILLED) * least
        return seconds[schedule] > most, spills, seconds[schedule]

    return min(known, key=rank)


def _heaviest(kernel: Kernel | Bundle, target: Target) -> Schedule:
    """The schedule of a kernel that isn't a product, before anything is known of its registers."""
    alone = not isinstance(kernel, Bundle)
    if isinstance(kernel, Bundle):
        kernel = kernel.largest
    if kernel.is_crossed:
        return columns_schedule(kernel, target)
    if kernel.is_chained:
        return attention_schedule(kernel, target)
    if any(v.run for v in kernel.ordered):
        return merge_schedule(kernel, target)
    if kernel.is_update:
        return update_schedule(kernel, target)
    if kernel.reduction:
        return rows_schedule(kernel, target)
    return pointwise_schedule(kernel, target, alone)


_UNSPILLED = 1.25
"""How much longer a schedule that doesn't spill may take than one that does. The model counts the
bytes of spills, but not the loads and stores that wait for them."""

_MOST = 4
"""The most schedules of a kernel that are compiled because they spill, beside those that differ in
their registers alone."""


class Defaults:
    """The default schedules of kernels for a target, chosen again where a compiled kernel
    spills."""

    def __init__(self, target: Target):
        self._target = target
        self._spilling: dict[Kernel | Bundle, dict[Schedule, Usage]] = {}

    def after(self, kernel: Kernel | Bundle, schedule: Schedule, usage: Usage) -> Schedule:
        """The schedule to take, now that `schedule` is compiled: itself, unless it spills, is the
        default, and the model ranks another one higher that spills less or isn't compiled yet."""
        known = self._spilling.get(kernel, {})
        if schedule in known or not (usage.spills or known):
            return schedule
        if schedule != default_schedule(kernel, self._target, known):
            return schedule
        known[schedule] = usage
        self._spilling[kernel] = known
        best = _best(kernel, self._target, known)
        if known[best].spills and sum(not s.registers for s in known) < _MOST:
            later = default_schedule(kernel, self._target, known)
            return best if later in known else later
        return best


def settled(
    first: Mapping[Any, Schedule],
    target: Target,
    compiled: Callable[[dict[Any, Schedule]], Mapping[Any, Usage]],
    shared: int = 0,
) -> dict[Any, Schedule]:
    """The schedule that each kernel (a Kernel or a Bundle) is taken with, from compiled kernels.

    first: the schedules to begin with. compiled: compiles kernels by schedules and returns the
    usage of those that have a form on the target. shared: the most bytes of shared memory of a
    program, by default the chip's. RuntimeError if a kernel needs more even with one stage, or if
    tensor cores have no memory for the sums of its least tiles.
    """
    defaults, out = Defaults(target), dict[Any, Schedule]()
    todo = dict(first)
    while todo:
        left: dict[Any, Schedule] = {}
        for kernel, usage in compiled(todo).items():
            schedule = todo[kernel]
            if usage.shared > (shared or target.chip.shared_each):
                left[kernel] = _smaller(kernel, schedule)
            elif usage.columns > target.chip.columns:
                left[kernel] = _narrower(kernel, schedule)
            elif (better := defaults.after(kernel, schedule, usage)) != schedule:
                left[kernel] = better
            else:
                out[kernel] = schedule
        todo = left
    return out


def _smaller(kernel: Kernel | Bundle, schedule: Schedule) -> Schedule:
    """The next schedule for a kernel that needs more shared memory than a GPU has."""
    if schedule.num_stages == 1:
        raise RuntimeError(
            f"kernel {kernel.name} needs more shared memory than this GPU has, even with one "
            f"stage: {schedule} has too large tiles"
        )
    return replace(schedule, num_stages=schedule.num_stages - 1)


def _narrower(kernel: Kernel | Bundle, schedule: Schedule) -> Schedule:
    """The next schedule for a kernel whose sums don't fit the memory of tensor cores: with half as
    many."""
    is_chained = isinstance(kernel, Kernel) and kernel.is_chained
    side = "block_m" if is_chained or schedule.block_m > schedule.block_n else "block_n"
    if getattr(schedule, side) <= DOT_MIN:
        raise RuntimeError(f"kernel {kernel.name} has no tiles whose sums fit tensor cores")
    return replace(schedule, **{side: getattr(schedule, side) // 2})


__all__ = [
    "Defaults",
    "Prediction",
    "Schedule",
    "Usage",
    "Work",
    "default_schedule",
    "head_block",
    "occupancy",
    "points",
    "power_of_two",
    "predict",
    "row_tiles",
    "runs_along_parallel",
    "settled",
    "sides",
    "work",
]
