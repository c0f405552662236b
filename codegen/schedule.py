"""Schedules: how a kernel is cut into programs and loops, as plain values."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .analysis import Analysis
from .attention import roles
from .index import Axis
from .kernel import Bundle, Dot, Kernel, Load
from .target import Target

DOT_MIN = 16  # the least M, N and K that tensor cores take


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one kernel runs. Only the block sizes that its form has are looked at.

    block: points that a program handles: elements, rows of a reduction, updates.
    block_r: positions of the reduction axes that it handles at a time.
    looped: whether it takes several steps along the reduction axes. Otherwise a row stays in
        registers from the first load to the last store.
    block_m, block_n, block_k: the tile of a contraction.
    group_m: so many tiles along M are neighbours in time, which share columns in the L2 cache.
    num_warps, num_stages: Triton's.
    """

    block: int = 1024
    block_r: int = 1
    looped: bool = False
    block_m: int = 64
    block_n: int = 64
    block_k: int = 32
    group_m: int = 8
    num_warps: int = 4
    num_stages: int = 3


def default_schedule(kernel: Kernel | Bundle, target: Target) -> Schedule:
    """A good schedule from shapes alone. A Bundle's suits its largest member."""
    if isinstance(kernel, Bundle):
        kernel = max(kernel.members, key=lambda k: _points(k.parallel) * _points(k.reduction))
    if kernel.is_chained:
        return _attention(kernel, target)
    if kernel.has_dot:
        return _dot(kernel, target)
    if kernel.is_update:
        return _update(kernel, target)
    if kernel.reduction:
        return _rows(kernel, target)
    return _pointwise(kernel, target)


def _points(axes: tuple) -> int:
    return math.prod(a.extent for a in axes)


def power_of_two(value: int) -> int:
    """The least power of two that is at least `value`."""
    return 1 << max(value - 1, 0).bit_length()


def _pointwise(kernel: Kernel, target: Target) -> Schedule:
    points = _points(kernel.parallel)
    if target.large_programs:
        return Schedule(block=min(power_of_two(points), target.tile_limit))
    # 128-bit loads by every thread, and small kernels spread over several multiprocessors.
    block = 1024 if points >= 1 << 18 else max(128, min(512, power_of_two(points // 256)))
    return Schedule(block=block, num_warps=4 if block >= 512 else 1 + (block >= 256))


def _rows(kernel: Kernel, target: Target) -> Schedule:
    rows, length = _points(kernel.parallel), _points(kernel.reduction)
    limit = target.tile_limit
    if target.large_programs:
        block_r = min(power_of_two(length), limit)
        block = min(power_of_two(rows), max(limit // block_r, 1))
        return Schedule(block=block, block_r=block_r, looped=block_r < length)
    if _runs_along_parallel(kernel):
        # Columns: neighbouring threads take neighbouring columns.
        block = min(power_of_two(rows), 64)
        block_r = min(power_of_two(length), max(4096 // block, 1))
        return Schedule(block=block, block_r=block_r, looped=block_r < length, num_warps=4)
    whole = power_of_two(length)
    if whole <= limit:
        block = max(1, min(power_of_two(rows), 1024 // whole))
        warps = max(1, min(16, block * whole // 512))
        return Schedule(block=block, block_r=whole, num_warps=_floor_power(warps))
    return Schedule(block=1, block_r=4096, looped=True, num_warps=8)


def _runs_along_parallel(kernel: Kernel) -> bool:
    """Whether most loads step through memory along a parallel axis rather than a reduction axis."""
    along_parallel = along_reduction = 0
    for value in kernel.values:
        if isinstance(value, Load):
            steps = {
                a: abs(value.offset.coefficient(a)) for a in (*kernel.parallel, *kernel.reduction)
            }
            along_parallel += any(steps[a] == 1 for a in kernel.parallel)
            along_reduction += any(steps[a] == 1 for a in kernel.reduction)
    return along_parallel > along_reduction


def _update(kernel: Kernel, target: Target) -> Schedule:
    points = _points(kernel.parallel)
    if target.large_programs:
        return Schedule(block=min(power_of_two(points), target.tile_limit))
    block = min(power_of_two(points), 128)
    return Schedule(block=block, num_warps=max(1, block // 32))


def _dot(kernel: Kernel, target: Target) -> Schedule:
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    rows, columns, inner = dot_extents(kernel, dot)
    half = dot.input_dtype.itemsize == 2

    def fit(extent: int, most: int) -> int:
        return max(DOT_MIN, min(power_of_two(extent), most))

    if dot.input_dtype.itemsize == 8 or not dot.input_dtype.is_floating_point:
        # Through a three-dimensional product, in registers.
        edge = 64 if target.large_programs else 16
        return Schedule(
            block_m=fit(rows, edge), block_n=fit(columns, edge), block_k=DOT_MIN, num_stages=2
        )
    if target.large_programs:
        return Schedule(block_m=fit(rows, 256), block_n=fit(columns, 256), block_k=fit(inner, 256))
    most = 128 if rows * columns >= 1 << 20 else 64
    block_m, block_n = fit(rows, most), fit(columns, most)
    block_k = fit(inner, 64 if half else 32)
    if half and rows * columns >= 1 << 23 and len(kernel.stores) == 1:
        block_n = fit(columns, 256)  # 169 registers on sm_90; a second store would spill
        return Schedule(
            block_m=block_m, block_n=block_n, block_k=block_k, num_warps=8, num_stages=3
        )
    warps = 8 if block_m * block_n >= 128 * 128 else 4
    return Schedule(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        num_warps=warps,
        num_stages=4 if half and warps == 8 else 3,
    )


def head_block(axis: Axis) -> int:
    """The length of a tile along the elements of a head, which it holds all of."""
    return max(DOT_MIN, power_of_two(axis.extent))


def _attention(kernel: Kernel, target: Target) -> Schedule:
    """block_m: rows a program owns. block_n: rows of the other side that it takes at a time."""
    parts = roles(kernel)
    if parts is None or parts.walked is None:
        raise NotImplementedError(f"{kernel.name}: a chain of folds that is not attention")
    own = parts.key if parts.walked is parts.query else parts.query

    def fit(axis: Axis, most: int) -> int:
        return max(DOT_MIN, min(power_of_two(axis.extent), most))

    if target.large_programs:
        return Schedule(block_m=fit(own, 256), block_n=fit(parts.walked, 256))
    width = max(head_block(parts.inner), head_block(parts.outer))
    return Schedule(block_m=fit(own, 128), block_n=fit(parts.walked, 64), num_warps=8)


def dot_extents(kernel: Kernel, dot: Dot) -> tuple[int, int, int]:
    """M, N and K of a contraction."""
    analysis = Analysis(kernel)
    in_a, in_b = analysis.axes(dot.a), analysis.axes(dot.b)
    rows = _points(tuple(a for a in kernel.parallel if a in in_a and a not in in_b))
    columns = _points(tuple(a for a in kernel.parallel if a in in_b and a not in in_a))
    return rows, columns, _points(dot.over)


def _floor_power(value: int) -> int:
    return 1 << (value.bit_length() - 1)
