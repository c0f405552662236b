"""Schedules of contractions: the fastest by prediction among the tiles that fit."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilewright.ir.dtype import FLOAT8

from ..kernel import Dot, Kernel
from ..kernel.analysis import analyzed
from ..kernel.digits import has_digits
from ..kernel.matrix import matrices
from ..kernel.roles import roles
from ..target import Target
from .boxes import boxed, has_boxes
from .registers import elements_held
from .roofline import Usage, predict
from .schedule import BYTE_MIN, DOT_MIN, Schedule, fit, points

Tiles = tuple[int, int, int, int, int]

# (M, N, K, warps, stages) for 16-bit operands: tiles that compile without spills, if only the sums
# are stored. The first one of equals is taken.
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
    "sm_90": (  # in the order of an H100's measurements: five stages beat two programs of three
        (128, 256, 64, 8, 4),
        (256, 128, 64, 8, 4),
        (128, 128, 64, 4, 5),
        (128, 128, 64, 8, 4),
        (128, 64, 64, 4, 5),
        (128, 64, 64, 4, 4),
        (64, 128, 64, 4, 4),
        (64, 64, 64, 4, 4),
        (128, 64, 64, 8, 3),
        (64, 128, 64, 8, 3),
        (64, 256, 64, 4, 5),
        (64, 32, 64, 4, 5),
        (32, 64, 64, 4, 5),
        (32, 32, 64, 2, 5),
        (16, 64, 128, 4, 5),
        (64, 16, 128, 4, 5),
        (16, 32, 128, 2, 5),
        (16, 16, 128, 1, 5),
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
_HALF["gfx950"] = _HALF["gfx942"]
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
"""Int8, and float8 on tensor cores that take it. Its sums are held twice: see `triton/dots.py`."""
_FAST: tuple[Tiles, ...] = ((128, 256, 128, 8, 4), (256, 128, 128, 8, 4))
"""More tiles for int8, and for float8 whose sums may be short."""
_FULL: tuple[Tiles, ...] = (
    (128, 128, 16, 8, 3),
    (64, 64, 16, 4, 3),
    (64, 32, 32, 4, 3),
    (32, 64, 32, 4, 3),
    (32, 32, 32, 4, 3),
    (16, 64, 32, 4, 3),
    (64, 16, 32, 4, 3),
    (16, 16, 32, 2, 3),
)
"""Float32."""
_DIGITS: tuple[Tiles, ...] = (
    (128, 128, 32, 8, 4),
    (64, 128, 32, 4, 3),
    (128, 64, 32, 4, 3),
    (64, 64, 32, 4, 4),
    (64, 32, 32, 4, 4),
    (32, 64, 32, 4, 4),
    (32, 32, 32, 2, 4),
    (16, 16, 32, 1, 4),
)
"""Float32 as digits. A step's sums are held beside those of all steps."""
_ROUNDED: tuple[Tiles, ...] = (
    (256, 128, 32, 8, 4),
    (128, 128, 32, 8, 3),
    (128, 64, 32, 8, 3),
    (128, 64, 32, 4, 3),
    (64, 128, 32, 4, 4),
    (64, 64, 32, 4, 3),
    *_FULL[2:],
)
"""Float32 as TF32, on tensor cores."""

_WARPS = 8  # the most that the tiles above have

ALIKE = 1.05
"""Predictions that differ by less are equal, and the first one in the table that isn't known to
spill is taken."""


def dot_schedule(
    kernel: Kernel, target: Target, known: Mapping[Schedule, Usage] | None = None
) -> Schedule:
    """known: the usage of schedules that were compiled and spill."""
    known = known or {}
    analysis = analyzed(kernel)
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analysis, dot)
    sizes = points(role.m), points(role.n), points(role.k)
    if dot.in_threads:
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
        if kernel.columns:
            block_n = fit(sizes[1], sizes[1])
        if dot.scales:
            block_k = min(block_k, fit(dot.over[-1].extent, 256))
        return Schedule(
            block_m=block_m,
            block_n=block_n,
            block_k=block_k,
            digits=has_digits(kernel),
            float8=native,
        )
    half = dot.input_dtype.itemsize <= 2
    rounded = target.rounds(dot.fast) and not half
    by_digits = has_digits(kernel)
    if by_digits:
        tiles = _DIGITS
    elif kernel.columns:
        size = dot.input_dtype.itemsize
        depth = 128 // size if half or rounded else DOT_MIN
        tiles = tuple(_holding_rows(fit(sizes[1], sizes[1]), depth, size, target))
    elif native or dot.of_bytes:
        tiles = (*_FAST, *_EIGHT) if dot.fast or dot.of_bytes else _EIGHT
    elif half:
        tiles = _HALF[target.chip.name]
    else:
        tiles = _ROUNDED if rounded else _FULL
    rows = target.chip.rows if half or rounded or by_digits else DOT_MIN
    if kernel.columns and sizes[0] * points(role.batch) < rows * target.chip.multiprocessors:
        rows = DOT_MIN
    found = [
        parted(
            kernel,
            replace(
                s,
                block_k=max(s.block_k, BYTE_MIN if native or dot.of_bytes else DOT_MIN),
                float8=native,
                tf32=rounded,
                digits=by_digits,
            ),
            target,
        )
        for s in _fitting(tiles, sizes, rows)
    ]
    smallest = found[-1]
    if walks(kernel, target):
        both = (
            (walking(kernel, replace(s, descriptors=_copies_results(kernel, s)), target), s)
            for s in found
        )
        found = [
            s for pair in both for s in pair if not s.persistent or _has_waves(kernel, s, target)
        ]
    elif has_boxes(kernel, target):
        turned = _fitting(tiles, (sizes[1], sizes[0], sizes[2]), rows)
        boxes = [b for s in turned if (b := boxed(kernel, s)) is not None]
        found += [parted(kernel, replace(b, tf32=rounded), target) for b in boxes]
    if copies_each(kernel, target):
        found = [replace(s, descriptors=True) for s in found]
    if not kernel.columns:
        # In as many parts as there can be, or in twice as many warps, the same tile may fit.
        free = [s for s in known if not s.registers]
        found += [replace(s, parts=_most_parts(s)) for s in free]
        found += [replace(s, num_warps=2 * s.num_warps) for s in free if s.num_warps < _WARPS]
    expected = {s: predict(kernel, s, target, _expected(kernel, s, target, known)) for s in found}
    least = min(p.seconds for p in expected.values())
    equal = [s for s, p in expected.items() if p.seconds <= ALIKE * least]
    best = next((s for s in equal if not expected[s].usage.spills), equal[0])
    return best if expected[best].resident else smallest


def _expected(
    kernel: Kernel, schedule: Schedule, target: Target, known: Mapping[Schedule, Usage]
) -> Usage | None:
    """The usage of a schedule, if it is known, or that of the same tile in fewer parts, which may
    spill for their size. Otherwise the spills of one that is known and whose threads hold as little
    in as many parts; None if there is none."""
    if schedule in known:
        return known[schedule]
    for other, usage in known.items():
        if replace(other, parts=schedule.parts) == schedule and other.parts < schedule.parts:
            return replace(usage, spills=0)
    held = elements_held(schedule)
    spills = [
        usage.spills
        for other, usage in known.items()
        if elements_held(other) <= held and other.parts >= schedule.parts
    ]
    if not spills:
        return None
    return replace(predict(kernel, schedule, target).usage, spills=max(spills))


def _holding_rows(columns: int, depth: int, size: int, target: Target) -> Iterator[Tiles]:
    """Tiles that have all columns, and up to `depth` terms of a sum at a time, of `size` bytes. In
    this order they were the fastest on an H100, those with fewer terms at a time by a sixth the
    slowest: only where more have no room."""
    for rows, warps in itertools.product((64, 128, 256, 32, 16), (4, 8, 2)):
        fed = rows < target.chip.rows or warps >= 4  # tensor cores need four warps
        if fed and 4 <= rows * columns // (warps * target.chip.warp) <= 128:  # elements of a thread
            yield rows, columns, depth, warps, 3
            yield rows, columns, depth, warps, 2
            if 2 * (rows + columns) * depth * size > target.chip.shared_each:
                yield rows, columns, depth // 2, warps, 2


def parted(kernel: Kernel, schedule: Schedule, target: Target) -> Schedule:
    """`schedule` with its sums cut into the fewest parts that leave registers for the epilogue.
    Where rows are folded the sums stay whole."""
    if kernel.columns:
        return schedule
    for parts in (1, 2, 4, 8):
        found = replace(schedule, parts=parts)
        if parts >= _most_parts(schedule) or predict(kernel, found, target).resident:
            break
    return found


def _most_parts(schedule: Schedule) -> int:
    return max(1, min(8, schedule.block_n // DOT_MIN))


def walks(kernel: Kernel, target: Target) -> bool:
    """Whether programs of a product may walk through its tiles: it is one of half types, and
    hardware can copy the tiles of all its operands."""
    return _copies(kernel, target) and not has_own_programs(kernel)


def copies_each(kernel: Kernel, target: Target) -> bool:
    """Whether hardware can copy them in a product that has a program for each tile: each sum is one
    over a segment, or of products of digits."""
    return _copies(kernel, target) and has_own_programs(kernel)


def has_own_programs(kernel: Kernel) -> bool:
    """Whether a product has a program for each tile even where hardware can copy tiles."""
    return sums_segments(kernel) or has_digits(kernel)


def sums_segments(kernel: Kernel) -> bool:
    """Whether a product's sums are over segments, whose ends are data."""
    dot = next(v for v in kernel.values if isinstance(v, Dot))
    role = roles(kernel, analyzed(kernel), dot)
    return role.group is not None and not role.has_segments_of_rows


def _copies(kernel: Kernel, target: Target) -> bool:
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    fed = dots[0].input_dtype.itemsize == 2 or has_digits(kernel)
    if not target.chip.tensor_maps or not fed or kernel.columns:
        return False
    role = roles(kernel, analyzed(kernel), dots[0])
    return all(matrices(dot, role, side) is not None for dot in dots for side in "mn")


def _has_waves(kernel: Kernel, schedule: Schedule, target: Target) -> bool:
    """Whether there are more tiles than places, so that a program walks through several."""
    return predict(kernel, schedule, target).waves > 1


def _copies_results(kernel: Kernel, schedule: Schedule) -> bool:
    """Whether hardware stores the tiles of a product as well: on an H100 that took 1 to 2% less
    time with tiles of this size, and more with others and with an epilogue."""
    plain = len(kernel.stores) == 1 and isinstance(kernel.stores[0].value, Dot)
    return plain and (schedule.block_m, schedule.block_n) == (128, 256)


def walking(kernel: Kernel, schedule: Schedule, target: Target) -> Schedule:
    """`schedule` with as many programs as there is room for, which walk through all tiles."""
    count = target.chip.multiprocessors
    found = parted(kernel, replace(schedule, persistent=count), target)
    return replace(found, persistent=count * max(predict(kernel, found, target).resident, 1))


def _fitting(
    tiles: tuple[Tiles, ...], sizes: tuple[int, int, int], rows: int
) -> Iterator[Schedule]:
    """The tiles with at least `rows` rows, if the product has so many, that are less than twice as
    long as its sides; if there are none, the smallest tile."""
    least = rows if sizes[0] >= rows else DOT_MIN
    fitting = [
        t for t in tiles if least <= t[0] <= fit(sizes[0], t[0]) and t[1] <= fit(sizes[1], t[1])
    ]
    for m, n, k, warps, stages in fitting or [min(tiles, key=lambda t: t[0] * t[1])]:
        block_k = fit(sizes[2], k)
        yield Schedule(
            block_m=m,
            block_n=n,
            block_k=block_k,
            num_warps=warps,
            num_stages=min(stages, max(2, -(-sizes[2] // block_k))),  # no more than steps
        )
