"""Schedules of contractions: tiles from the sizes of M, N and K."""

from __future__ import annotations

from ..analysis import Analysis
from ..kernel import Dot, Kernel
from ..target import Target
from .schedule import Schedule, points, power_of_two

DOT_MIN = 16  # the least M, N and K that tensor cores take


def dot_schedule(kernel: Kernel, target: Target) -> Schedule:
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


def dot_extents(kernel: Kernel, dot: Dot) -> tuple[int, int, int]:
    """M, N and K of a contraction."""
    analysis = Analysis(kernel)
    in_a, in_b = analysis.axes(dot.a), analysis.axes(dot.b)
    rows = points(a for a in kernel.parallel if a in in_a and a not in in_b)
    columns = points(a for a in kernel.parallel if a in in_b and a not in in_a)
    return rows, columns, points(dot.over)
