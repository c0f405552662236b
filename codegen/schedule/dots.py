"""Schedules of contractions: the tiles that are predicted to take least among those that fit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilewright.ir.dtype import FLOAT8

from ..analysis import Analysis
from ..kernel import Apply, Dot, Kernel
from ..roles import roles
from ..target import Target
from .roofline import predict
from .schedule import DOT_MIN, FLOAT8_MIN, Schedule, fit, points

Tiles = tuple[int, int, int, int, int]

# (M, N, K, warps, stages) for 16-bit operands: what compiles without spills, if only the sums are
# stored. Of equals the first one is taken.
_HALF: dict[str, tuple[Tiles, ...]] = {
    "sm_80": (
        (128, 128, 32, 4, 4),
        (128, 64, 32, 4, 4),
        (64, 128, 32, 4, 4),
        (64, 64, 64, 4, 4),
        (64, 32, 64, 4, 4),
        (32, 64, 64, 4, 4),
        (32, 32, 64, 2, 4),
        (16, 64, 128, 4, 4),
        (64, 16, 128, 4, 4),
        (16, 16, 128, 1, 4),
    ),
    "sm_90": (
        (128, 256, 64, 8, 4),
        (256, 128, 64, 8, 4),
        (128, 128, 64, 8, 4),
        (128, 128, 64, 4, 3),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (128, 64, 64, 8, 3),
        (64, 128, 64, 8, 3),
        (64, 64, 32, 4, 3),
        (64, 32, 64, 4, 5),
        (32, 64, 64, 4, 5),
        (32, 32, 64, 2, 5),
        (16, 64, 128, 4, 4),
        (64, 16, 128, 4, 4),
        (16, 16, 128, 1, 4),
    ),
    "gfx942": (
        (128, 128, 64, 4, 2),
        (128, 64, 64, 4, 2),
        (64, 128, 64, 4, 2),
        (64, 64, 64, 4, 2),
        (64, 32, 64, 4, 2),
        (32, 64, 64, 4, 2),
        (32, 32, 64, 2, 2),
        (16, 16, 128, 1, 2),
    ),
}
_HALF["sm_100"] = _HALF["sm_90"]
_EIGHT: tuple[Tiles, ...] = (
    (128, 128, 128, 8, 4),
    (128, 128, 128, 8, 3),
    (64, 128, 128, 4, 4),
    (128, 64, 128, 4, 4),
    (64, 64, 128, 4, 4),
    (64, 32, 128, 4, 5),
    (32, 64, 128, 4, 4),
    (16, 64, 128, 4, 4),
    (64, 16, 128, 4, 5),
    (16, 16, 128, 1, 4),
)
"""For float8 on tensor cores that take it. Sums are held twice, see `triton/dots.py`."""
_FAST: tuple[Tiles, ...] = ((128, 256, 128, 8, 4), (256, 128, 128, 8, 4))
"""For float8 whose sums may be short, beside these."""
_FULL: tuple[Tiles, ...] = (
    (128, 128, 32, 8, 3),
    (64, 64, 32, 4, 3),
    (64, 32, 32, 4, 3),
    (32, 64, 32, 4, 3),
    (32, 32, 32, 4, 3),
    (16, 64, 32, 4, 3),
    (64, 16, 32, 4, 3),
    (16, 16, 32, 2, 3),
)
"""For float32."""
_ROUNDED: tuple[Tiles, ...] = (
    (256, 128, 32, 8, 4),
    (128, 128, 32, 8, 3),
    (128, 64, 32, 8, 3),
    (64, 128, 32, 4, 4),
    *_FULL[1:],
)
"""For float32 as TF32, on tensor cores."""
_REGISTERS = 180
"""What a thread has for sums and for what is computed of them: a unit of Op.cost takes a 24th of
the sums' registers. Above it convolutions with mish, tanh or erf behind them were spilled."""


def dot_schedule(kernel: Kernel, target: Target) -> Schedule:
    analysis = Analysis(kernel)
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analysis, dot)
    sizes = points(role.m), points(role.n), points(role.k)
    if dot.input_dtype.itemsize == 8 or not dot.input_dtype.is_floating_point:
        # Through a three-dimensional product, in registers.
        edge = 64 if target.large_programs else 16
        return Schedule(
            block_m=fit(sizes[0], edge),
            block_n=fit(sizes[1], edge),
            block_k=DOT_MIN,
            num_stages=2,
        )
    native = dot.input_dtype in FLOAT8 and dot.input_dtype.name in target.chip.tensor
    if target.large_programs:
        block_m, block_n, block_k = (fit(size, 256) for size in sizes)
        return Schedule(block_m=block_m, block_n=block_n, block_k=block_k, float8=native)
    half = dot.input_dtype.itemsize <= 2
    rounded = target.rounds(dot.fast) and not half
    if native:
        tiles = (*_FAST, *_EIGHT) if dot.fast else _EIGHT
    elif half:
        tiles = _HALF[target.chip.name]
    else:
        tiles = _ROUNDED if rounded else _FULL
    rows = target.chip.rows if half or rounded else DOT_MIN
    found = [
        replace(
            s,
            block_k=max(s.block_k, FLOAT8_MIN if native else DOT_MIN),
            float8=native,
            tf32=rounded,
        )
        for s in _fitting(tiles, sizes, rows)
    ]
    if rounded:
        share = 1 + _cost_behind(kernel) / 24
        found = [s for s in found if _sums(s) * share <= _REGISTERS] or found[-1:]
    best = min(found, key=lambda s: predict(kernel, s, target).seconds)
    return best if predict(kernel, best, target).resident else found[-1]


def _sums(schedule: Schedule) -> int:
    """Registers of a thread that hold sums."""
    return schedule.block_m * schedule.block_n // (32 * schedule.num_warps)


def _cost_behind(kernel: Kernel) -> int:
    """What is computed of a product, as Op.cost for each element."""
    behind: set[int] = set()
    cost = 0
    for value in kernel.values:
        if isinstance(value, Dot) or any(id(o) in behind for o in value.operands()):
            behind.add(id(value))
            cost += value.op.cost if isinstance(value, Apply) else 0
    return cost


def _fitting(
    tiles: tuple[Tiles, ...], sizes: tuple[int, int, int], rows: int
) -> Iterator[Schedule]:
    """The tiles that are not twice as long as what they are of, and that have `rows` if there are
    so many; otherwise the smallest one."""
    least = rows if sizes[0] >= rows else DOT_MIN
    fitting = [
        t for t in tiles if least <= t[0] <= fit(sizes[0], t[0]) and t[1] <= fit(sizes[1], t[1])
    ]
    for m, n, k, warps, stages in fitting or tiles[-1:]:
        yield Schedule(
            block_m=m,
            block_n=n,
            block_k=fit(sizes[2], k),
            num_warps=warps,
            num_stages=stages,
        )
