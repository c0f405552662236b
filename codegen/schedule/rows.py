"""Schedules of kernels without contractions: elements, rows, updates."""

from __future__ import annotations

from collections.abc import Iterable

from ..kernel import Apply, Kernel, Load, Scan
from ..kernel.analysis import analyzed
from ..kernel.columns import columns
from ..kernel.index import Axis
from ..target import Target
from .cutting import passes
from .schedule import Schedule, floor_power, points, power_of_two
from .turned import Sides, sides

STEP = 4096
"""The elements of a long row that a program takes at a time. A row that is read once is long from
there on; a row that is read again is long only if it doesn't fit on chip."""

_MANY = 1 << 21
"""Elements of a map that fills a GPU with twice as much work for a thread."""
_LIGHT = 16
"""The most arithmetic of such a map: the registers of more would leave fewer threads."""
_HELD = 32
"""Elements of short columns that a thread loads."""
_SHARED = 4096
"""Elements of the rows of a program whose rows meet the same weights: it reads these once for all
of its rows."""
_SIDE_BY_SIDE = 16
"""The least columns that a program folds: 64 bytes of float32."""
_BUSY = 16
"""Warps that keep a multiprocessor busy."""
_THREADS, _UNALIGNED = 1024, 640
"""Threads for which a multiprocessor has registers: if they read rows by vectors, and if not."""
_OF_ROW, _AT_A_TIME = 32, 8
"""Bytes of a row that a thread has, at most, where columns are folded too; and the elements of rows
that it mostly takes at a time: it keeps as many sums of each fold."""
_TAPS = 512
"""Positions of a window that a thread walks along one by one, at most."""
_NEAR = 4
"""How far apart in memory the windows of neighbouring threads begin, at most."""


def pointwise_schedule(kernel: Kernel, target: Target, alone: bool = True) -> Schedule:
    """alone: whether the kernel isn't a member of a bundle, whose text knows no sizes."""
    found = sides(kernel) if alone else None
    if found is not None:
        return _turned_schedule(kernel, found, target)
    count = points(kernel.parallel)
    if target.large_programs:
        return Schedule(block=min(power_of_two(count), target.tile_limit))
    block = _block(count)
    halves = sum(v.buffer.dtype.itemsize for v in _loads_of_rows(kernel)) == 2
    cost = sum(v.op.cost for v in kernel.values if isinstance(v, Apply))
    if count >= _MANY and halves and cost <= _LIGHT:
        block *= 2  # a single vector of halves is too little to be on its way to a thread
    return Schedule(block=block, num_warps=4 if block >= 512 else 1 + (block >= 256))


def _block(count: int) -> int:
    """The points of a program: each thread has a vector of 16 bytes, and small kernels spread over
    several multiprocessors."""
    return 1024 if count >= 1 << 18 else max(128, min(512, power_of_two(count // 256)))


def _turned_schedule(kernel: Kernel, found: Sides, target: Target) -> Schedule:
    """Rectangles whose sides are whole lines of a cache, for all loads together."""
    across, down = points(found.across), points(found.down)
    if target.large_programs:
        block = min(power_of_two(across), 256)
        return Schedule(block=block, turned=min(power_of_two(down), target.tile_limit // block))
    loads = _loads_of_rows(kernel)
    most = 64 if len(loads) <= 3 else 32  # more would spill
    block, turned = min(power_of_two(across), most), min(power_of_two(down), most)
    widest = max(v.buffer.dtype.itemsize for v in loads)
    warps = block * turned * widest // 2048  # 64 bytes of each load on the way to a thread
    return Schedule(block=block, turned=turned, num_warps=max(1, min(floor_power(warps), 8)))


def rows_schedule(kernel: Kernel, target: Target) -> Schedule:
    rows, length = points(kernel.parallel), points(kernel.reduction)
    limit = target.tile_limit
    if target.large_programs:
        block_r = min(power_of_two(length), limit)
        block = min(power_of_two(rows), max(limit // block_r, 1))
        return Schedule(block=block, block_r=block_r, looped=block_r < length)
    if kernel.ordered:
        # An eighth of the compare-and-swaps of a network are between registers of one thread.
        whole = power_of_two(length)
        block = max(1, min(power_of_two(rows), 1024 // whole))
        return Schedule(block=block, block_r=whole, num_warps=max(1, block * whole // 256))
    if runs_along_parallel(kernel):
        short = _short_columns(kernel, target)
        if short is not None:
            return short
        # Columns: neighbouring threads take neighbouring columns.
        block = min(power_of_two(rows), 64)
        while block > _SIDE_BY_SIDE and rows < block * target.chip.multiprocessors:
            block //= 2
        loads = len(_loads_of_rows(kernel))
        held = 4096 if loads <= 2 else 2048 if loads <= 3 else 1024  # more would spill
        block_r = min(power_of_two(length), max(held // block, 1))
        return Schedule(block=block, block_r=block_r, looped=block_r < length, num_warps=4)
    if folds_windows(kernel):
        # A position is the same for all threads: its place and its bounds are computed once.
        block = _block(rows)
        return Schedule(block=block, block_r=1, looped=True, num_warps=max(1, min(block // 128, 4)))
    whole = power_of_two(length)
    # Philox's words take registers: a thread has half as many elements.
    if whole <= (limit >> kernel.draws if passes(kernel) > 1 else STEP):
        most = _SHARED if _shares_loads(kernel) and rows * whole >= _MANY else 1024
        block = max(1, min(power_of_two(rows), most // whole))
        warps = max(1, min(16 << kernel.draws, block * whole // (512 >> kernel.draws)))
        return Schedule(block=block, block_r=whole, num_warps=floor_power(warps))
    warps = _warps(kernel, target)
    step = STEP * min(warps, 16) // 8 >> kernel.draws  # a thread of 1,024 has fewer registers
    if any(isinstance(v, Scan) and v.dtype.itemsize == 8 for v in kernel.values):
        warps, step = max(warps // 2, 1), step // 2  # running results take two registers each
    return Schedule(block=1, block_r=step, looped=True, num_warps=warps)


def _shares_loads(kernel: Kernel) -> bool:
    """Whether each row meets the same elements, as those of a norm meet its weights."""
    row = set(kernel.reduction)
    loads = (v for v in kernel.values if isinstance(v, Load))
    return any(set() < load.offset.axes() <= row for load in loads)


def _short_columns(kernel: Kernel, target: Target) -> Schedule | None:
    """A schedule in which each thread folds some whole columns by itself, such as the sums of the
    parts of a product; None if they are too long, or too few to keep the machine busy."""
    loads, whole = _loads_of_rows(kernel), power_of_two(points(kernel.reduction))
    vector = 16 // max(v.buffer.dtype.itemsize for v in loads)
    if vector * whole * len(loads) > _HELD:
        return None
    for warps in (4, 2, 1):
        block = warps * target.chip.warp * vector
        if points(kernel.parallel) >= 4 * target.chip.multiprocessors * block:
            return Schedule(block=block, block_r=whole, num_warps=warps)
    return None


def columns_schedule(kernel: Kernel, target: Target) -> Schedule:
    """A schedule of folds of rows and of their columns: a program takes `block` rows at a time,
    while the next ones are on their way."""
    found = columns(kernel)
    assert found is not None, "folds over some of the reduction axes are of rows and columns"
    down, wide = points(found.down), power_of_two(points(found.across))
    if target.large_programs:
        block = max(1, min(power_of_two(down), target.tile_limit // wide))
        return Schedule(block=block, block_r=wide, looped=True, num_stages=1)
    widest = max(v.buffer.dtype.itemsize for v in _loads_of_rows(kernel))
    warps = max(8, min(wide * widest // (_OF_ROW * target.chip.warp), 16))
    held = _AT_A_TIME * warps * target.chip.warp // wide
    return Schedule(
        block=max(1, min(floor_power(max(held, 1)), power_of_two(down))),
        block_r=wide,
        looped=True,
        num_warps=warps,
        num_stages=3,
    )


def _warps(kernel: Kernel, target: Target) -> int:
    """The warps of a program that walks along a row. Few rows get more warps each. So do rows that
    are read again, if fewer programs at a time let them stay in the cache."""
    rows = points(kernel.parallel)
    least = next((w for w in (8, 16) if rows * w >= _BUSY * target.chip.multiprocessors), 16)
    if passes(kernel) == 1:
        return least
    length = points(kernel.reduction)
    row = length * sum(v.buffer.dtype.itemsize for v in _loads_of_rows(kernel))
    threads = _THREADS if length % 16 == 0 else _UNALIGNED
    for warps in (8, 16, 32):
        programs = max(threads // (target.chip.warp * warps), 1)
        if programs * target.chip.multiprocessors * row <= target.chip.cached:
            return max(warps, least)
    return least


def runs_along_parallel(kernel: Kernel) -> bool:
    """Whether most loads of whole rows step through memory along a parallel axis rather than a
    reduction axis. Loads with one element for each row or column count for nothing."""
    along_parallel = along_reduction = 0
    for load in _loads_of_rows(kernel):
        steps = {a for a in load.offset.axes() if abs(load.offset.coefficient(a)) == 1}
        along_parallel += not steps.isdisjoint(kernel.parallel)
        along_reduction += not steps.isdisjoint(kernel.reduction)
    return along_parallel > along_reduction


def folds_windows(kernel: Kernel) -> bool:
    """Whether most loads are of short windows, whose positions lie between those of the windows
    beside them, which begin near."""
    if points(kernel.reduction) > _TAPS or kernel.draws:
        return False
    loads = _loads_of_rows(kernel)
    return sum(_is_window(v, kernel) for v in loads) * 2 > len(loads)


def _is_window(load: Load, kernel: Kernel) -> bool:
    """Whether neighbouring rows of a load begin near each other, and within each other's reach."""

    def steps(axes: Iterable[Axis]) -> list[tuple[int, int]]:
        found = [(abs(load.offset.coefficient(a)), a.extent) for a in axes]
        return [each for each in found if each[0]]

    beside, within = steps(kernel.parallel), steps(kernel.reduction)
    near = min((step for step, _ in beside), default=_NEAR + 1)
    return near <= _NEAR and any(near < step * extent for step, extent in within)


def _loads_of_rows(kernel: Kernel) -> list[Load]:
    """The loads that range over the most points."""
    analysis = analyzed(kernel)
    loads = [v for v in kernel.values if isinstance(v, Load)]
    counts = {v: points(analysis.axes(v)) for v in loads}
    most = max(counts.values(), default=1)
    return [v for v in loads if counts[v] == most]


def merge_schedule(kernel: Kernel, target: Target) -> Schedule:
    length = power_of_two(points(kernel.reduction))
    return Schedule(block_r=min(length, target.tile_limit if target.large_programs else 1024))


def update_schedule(kernel: Kernel, target: Target) -> Schedule:
    if kernel.is_grouped:
        return _grouped_schedule(kernel, target)
    count = points(kernel.parallel)
    if target.large_programs:
        return Schedule(block=min(power_of_two(count), target.tile_limit))
    block = min(power_of_two(count), 128)
    return Schedule(block=block, num_warps=max(1, block // 32))


def _grouped_schedule(kernel: Kernel, target: Target) -> Schedule:
    columns, count = points(kernel.parallel), points(kernel.reduction)
    along = 8  # most groups are short, but the longest group is waited for
    most = target.tile_limit // along if target.large_programs else 256
    wide = min(power_of_two(columns), most)
    # Registers hold few groups side by side: addresses and ends of many would not fit.
    block = min(power_of_two(count), max(1, (most if target.large_programs else 64) // wide))
    return Schedule(block=block, block_r=along, block_n=wide)
