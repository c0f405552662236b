"""Schedules: how kernels are cut into programs and loops. The defaults follow from shapes alone."""

from __future__ import annotations

from ..kernel import Bundle, Kernel
from ..target import Target
from .attention import attention_schedule
from .dots import dot_schedule
from .roofline import Prediction, Usage, Work, occupancy, predict, work
from .rows import merge_schedule, pointwise_schedule, rows_schedule, update_schedule
from .schedule import Schedule, head_block, points, power_of_two
from .turned import sides


def default_schedule(kernel: Kernel | Bundle, target: Target) -> Schedule:
    """A good schedule from shapes alone. A Bundle's suits its largest member."""
    alone = not isinstance(kernel, Bundle)
    if isinstance(kernel, Bundle):
        kernel = kernel.largest
    if kernel.is_chained:
        return attention_schedule(kernel, target)
    if kernel.has_dot:
        return dot_schedule(kernel, target)
    if any(v.run for v in kernel.ordered):
        return merge_schedule(kernel, target)
    if kernel.is_update:
        return update_schedule(kernel, target)
    if kernel.reduction:
        return rows_schedule(kernel, target)
    return pointwise_schedule(kernel, target, alone)


__all__ = [
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
