"""The schedules that a kernel may have on a GPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..kernel import Bundle, Dot, Kernel
from ..kernel.analysis import analyzed
from ..kernel.attention import Roles
from ..kernel.attention import roles as attention_roles
from ..kernel.roles import roles
from ..target import Target
from .attention import attention_schedule, runs_ahead, specializes, tensor_columns
from .boxes import depths, has_boxes, shapes
from .dots import copies_each, dot_schedule, has_own_programs, parted, walking, walks
from .roofline import predict
from .rows import columns_schedule, pointwise_schedule, rows_schedule, update_schedule
from .schedule import BYTE_MIN, DOT_MIN, Schedule, fit, head_block, points, power_of_two
from .space import Space, grid

Choices = Mapping[str, Sequence[Any]]

MOST_HELD = 128
"""The most elements of a tile's sums that a thread may hold: more are spilled."""
HALF_HELD = 128
"""Registers of a thread with which two programs of 8 warps fit a multiprocessor: the scores of one
become weights during products of the other."""
_GROUP = 4  # warps, which multiply together
ROW_PIECES = (1024, 2048, 4096, 8192)


def space(kernel: Kernel | Bundle, target: Target) -> Space[Schedule]:
    """All schedules of a kernel that fit a multiprocessor by the cost model, which ranks them; the
    default is the first. The schedules of a Bundle are for its largest member."""
    alone = not isinstance(kernel, Bundle)
    if isinstance(kernel, Bundle):
        kernel = kernel.largest
    default, choices = _choices(kernel, target, alone)
    names = tuple(choices)

    @functools.cache
    def seconds(schedule: Schedule) -> float:
        return predict(kernel, schedule, target).seconds

    def effect(schedule: Schedule) -> Any:
        """The choices of a schedule, if it fits."""
        fits = _fits(kernel, schedule, target) and math.isfinite(seconds(schedule))
        if schedule != default and not fits:
            return None
        return tuple(getattr(schedule, name) for name in names)

    length = points(kernel.reduction)

    def made(**given: Any) -> Schedule:
        if "block_r" in given:
            given["looped"] = given["block_r"] < length
        schedule = replace(default, **given)
        if "block_k" not in given or not _is_boxed(kernel, schedule, target):
            return schedule
        fitted = walking if schedule.persistent else parted
        return fitted(kernel, schedule, target)

    places = grid(default, choices, made, effect)
    predicted = {s: seconds(s) for s in places}
    return Space(tuple(places), places, predicted)


def _choices(kernel: Kernel, target: Target, alone: bool) -> tuple[Schedule, Choices]:
    if kernel.is_crossed:
        stages = {"num_warps": (1, 2, 4, 8, 16), "num_stages": (1, 2, 3, 4, 5)}
        return columns_schedule(kernel, target), {"block": (1, 2, 4, 8, 16, 32), **stages}
    if kernel.is_chained:
        return _attention(kernel, target)
    if kernel.has_dot:
        return _dot(kernel, target)
    if kernel.is_update:
        block = {"block": (64, 128, 256, 512, 1024), "num_warps": (1, 2, 4, 8)}
        return update_schedule(kernel, target), block
    if kernel.reduction:
        return _rows(kernel, target)
    default = pointwise_schedule(kernel, target, alone)
    if default.turned:
        side = (16, 32, 64, 128)
        return default, {"block": side, "turned": side, "num_warps": (1, 2, 4, 8)}
    return default, {"block": (128, 256, 512, 1024, 2048, 4096), "num_warps": (1, 2, 4, 8)}


def _dot(kernel: Kernel, target: Target) -> tuple[Schedule, Choices]:
    default = dot_schedule(kernel, target)
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analyzed(kernel), dot)
    m, n, k = points(role.m), points(role.n), points(role.k)
    if dot.in_threads:
        return default, {"block_m": (16, 32), "block_n": (16, 32), "num_warps": (1, 2, 4, 8)}
    least = BYTE_MIN if default.float8 or dot.of_bytes else DOT_MIN
    walked, chip = walks(kernel, target), target.chip
    copied = walked or copies_each(kernel, target)
    return default, {
        "block_m": _powers(DOT_MIN, fit(m, 256)),
        "block_n": (default.block_n,) if kernel.columns else _powers(DOT_MIN, fit(n, 256)),
        "block_k": _powers(least, max(fit(k, 128), least)),
        "box": ((), *shapes(kernel)) if not walked and has_boxes(kernel, target) else ((),),
        "group_m": (1, 8) if m * n >= 1 << 22 else (default.group_m,),
        "num_warps": (1, 2, 4, 8),
        "num_stages": (2, 3, 4, 5),
        "persistent": (0, chip.multiprocessors) if walked else (0,),
        "descriptors": (False, True) if copied else (False,),
        "specialized": (False, True) if walked and chip.specialized else (False,),
    }


def _attention(kernel: Kernel, target: Target) -> tuple[Schedule, Choices]:
    default = attention_schedule(kernel, target)
    parts = attention_roles(kernel)
    assert parts is not None and parts.walked is not None
    own = parts.key if parts.walked is parts.query else parts.query
    copied = target.chip.tensor_maps and parts.products.input_dtype.itemsize == 2
    return default, {
        "block_m": _powers(DOT_MIN, fit(own.extent, 128)),
        "block_n": _powers(DOT_MIN, fit(parts.walked.extent, 128)),
        "num_warps": (4, 8),
        "num_stages": (1, 2, 3, 4),
        "descriptors": (False, True) if copied else (False,),
        "registers": (0, HALF_HELD) if copied else (0,),
        "ahead": (False, True) if runs_ahead(kernel, target) else (False,),
        "specialized": (False, True) if specializes(kernel, target) else (False,),
    }


def _rows(kernel: Kernel, target: Target) -> tuple[Schedule, Choices]:
    default = rows_schedule(kernel, target)
    rows, length = power_of_two(points(kernel.parallel)), power_of_two(points(kernel.reduction))
    pieces = {length} if length <= target.tile_limit else set()
    pieces |= {p for p in ROW_PIECES if p < length} | {default.block_r}
    return default, {
        "block": [b for b in (1, 2, 4, 8, 16, 32, 64, 128) if b <= rows],
        "block_r": sorted(pieces),
        "num_warps": (1, 2, 4, 8, 16),
    }


def _fits(kernel: Kernel, schedule: Schedule, target: Target) -> bool:
    """Whether each thread has enough to hold, and not too much."""
    threads = schedule.num_warps * target.chip.warp
    if not _is_boxed(kernel, schedule, target):
        return False
    if kernel.has_dot:
        held = schedule.block_m * schedule.block_n / threads
        parts = attention_roles(kernel) if kernel.is_chained else None
        if parts is not None:
            held += schedule.block_m * head_block(parts.outer) / threads
        if schedule.registers and not (
            schedule.descriptors and schedule.num_warps == 8 and held < schedule.registers
        ):
            return False
        if parts is not None:
            if schedule.specialized and not _has_its_own_warps(schedule, target, parts):
                return False
        elif (schedule.specialized or schedule.descriptors) and not schedule.persistent:
            return schedule.descriptors and has_own_programs(kernel)
        if not 1 <= held <= MOST_HELD * (2 if parts is not None else 1):
            return False
    else:
        block = schedule.block * (schedule.block_r if kernel.reduction else schedule.turned or 1)
        if block > target.tile_limit or not threads // 4 <= block <= 128 * threads:
            return False
    return True


def _is_boxed(kernel: Kernel, schedule: Schedule, target: Target) -> bool:
    """Whether a box, if there is one, is that of the schedule's tile, whose channels are the rows
    of tensor cores' products."""
    if not schedule.box:
        return True
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    within = schedule.block_k in depths(roles(kernel, analyzed(kernel), dot))
    fed = schedule.block_n >= target.chip.rows and schedule.num_warps >= _GROUP
    return math.prod(schedule.box) == schedule.block_m and within and fed


def _has_its_own_warps(schedule: Schedule, target: Target, parts: Roles) -> bool:
    """Whether warps that only copy have all operands to copy, ahead of the products."""
    own, walked = parts.query, parts.key
    if parts.walked is own:
        own, walked = walked, own
    if parts.total is None and not _sums_fit(schedule, target, parts):
        return False
    whole = own.extent % schedule.block_m == walked.extent % schedule.block_n == 0
    return whole and schedule.descriptors and schedule.num_stages > 1 and not schedule.registers


def _sums_fit(schedule: Schedule, target: Target, parts: Roles) -> bool:
    """Whether tensor cores have memory for all that a gradient sums. For sm_100 Triton 3.9 makes an
    empty kernel of one whose sums they have no memory for."""
    enough = tensor_columns(parts, schedule) < target.chip.columns
    return enough and schedule.block_m >= target.chip.rows


def _powers(first: int, last: int) -> list[int]:
    return [1 << i for i in range(first.bit_length() - 1, last.bit_length())]
