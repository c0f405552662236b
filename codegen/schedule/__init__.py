"""Schedules: how kernels are cut into programs and loops. The defaults follow from shapes alone."""

from __future__ import annotations

from collections.abc import Mapping

from ..kernel import Bundle, Kernel
from ..target import Target
from .attention import attention_schedule
from .dots import dot_schedule
from .roofline import Prediction, Usage, Work, occupancy, predict, work
from .rows import merge_schedule, pointwise_schedule, rows_schedule, update_schedule
from .schedule import Schedule, head_block, points, power_of_two
from .turned import sides


def default_schedule(
    kernel: Kernel | Bundle, target: Target, known: Mapping[Schedule, Usage] | None = None
) -> Schedule:
    """A good schedule from shapes alone. A Bundle's suits its largest member.

    known: what schedules that were compiled use. It takes the place of the model's estimates for
        tiles of products; other kernels have one default.
    """
    alone = not isinstance(kernel, Bundle)
    if isinstance(kernel, Bundle):
        kernel = kernel.largest
    if kernel.is_chained:
        return attention_schedule(kernel, target)
    if kernel.has_dot:
        return dot_schedule(kernel, target, known)
    if any(v.run for v in kernel.ordered):
        return merge_schedule(kernel, target)
    if kernel.is_update:
        return update_schedule(kernel, target)
    if kernel.reduction:
        return rows_schedule(kernel, target)
    return pointwise_schedule(kernel, target, alone)


_MOST = 4
"""The most schedules of a kernel that are compiled because they spill."""


class Defaults:
    """The default schedules of kernels for a target, chosen again where a compiled kernel
    spills."""

    def __init__(self, target: Target):
        self._target = target
        self._spilling: dict[Kernel | Bundle, dict[Schedule, Usage]] = {}

    def after(self, kernel: Kernel | Bundle, schedule: Schedule, usage: Usage) -> Schedule:
        """The schedule to take, now that `schedule` is compiled: itself, unless it spills, is the
        default, and the model ranks another one higher that spills less or isn't compiled yet."""
        if not usage.spills:
            return schedule
        known = self._spilling.setdefault(kernel, {})
        if schedule in known or schedule != default_schedule(kernel, self._target, known):
            return schedule
        known[schedule] = usage
        if len(known) < _MOST:
            return default_schedule(kernel, self._target, known)
        return min(known, key=lambda s: predict(kernel, s, self._target, known[s]).seconds)


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
    "sides",
    "work",
]
