"""The cost of a kernel, in bytes that could be moved in its time."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..kernel import Apply, Buffer, Kernel, Load, RandomBits, Reduce, Value, ranges
from ..kernel.domain import Domain
from ..kernel.index import Axis, Index
from ..schedule import default_schedule, predict
from ..target import Target

DEAR = 4
"""The least cost of a function for which it matters how often it is computed: a division's."""
DEAR_TABLE = 12
"""The same for what some points of a map have in common: a sine's."""


def kernel_cost(kernel: Kernel, domain: Domain, target: Target) -> float:
    """Memory traffic and arithmetic of one launch, and the launch itself.

    Loads of one buffer at different offsets count apart: neighbours may meet in a cache, rows and
    columns don't.
    """
    axes = ranges(kernel.values)
    points: dict[frozenset[Axis], int] = {}

    def count(value: Value) -> int:
        over = axes[id(value)]
        found = points.get(over)
        if found is None:
            found = points[over] = math.prod(a.extent for a in over)
        return found

    row = frozenset(domain.reduction)
    once = passed = arithmetic = 0
    directions: dict[Buffer, set[bool]] = {}
    for value in kernel.values:
        if isinstance(value, Load):
            read = min(count(value), value.buffer.size) * value.buffer.dtype.itemsize
            if row & axes[id(value)]:
                passed += read
                along = directions.setdefault(value.buffer, set())
                along |= {axis in row for axis in _steps(value.offset)}
            else:
                once += read
        elif isinstance(value, (Apply, RandomBits)):
            # An expression without axes is computed once for all points of a tile.
            cost = value.op.cost if isinstance(value, Apply) else 60
            arithmetic += cost * count(value)
            over = axes[id(value)]
            in_rows = bool(row & over) and cost >= DEAR
            table = bool(over and target.columns) and not row & over and cost >= DEAR_TABLE
            if (in_rows or table) and not kernel.has_dot:
                # What varies along rows alone is computed again in each of them, and on a GPU what
                # varies along some parallel axes alone at each point.
                own = math.prod(a.extent for a in over if a not in row)
                arithmetic += cost * count(value) * (domain.points // max(own, 1) - 1)
        elif isinstance(value, Reduce):
            arithmetic += count(value.arg)
    written = 0
    for store in kernel.stores:
        elements = domain.points
        if row & axes[id(store.value)] or row & store.offset.axes():
            elements *= domain.row
        written += min(elements, store.buffer.size) * store.buffer.dtype.itemsize
    moved: float = once + written + passed * _passes(kernel, domain, target)
    if target.sector and not kernel.has_dot:
        # Read both along rows and across them: in one of the two, each element takes a sector.
        turned = [b for b, along in directions.items() if len(along) == 2]
        moved += sum(b.size * target.sector for b in turned)
    if row and not kernel.has_dot:
        moved *= max(1.0, target.parallel / max(domain.points, 1))
    return target.launch_cost + moved + arithmetic * target.op_cost


def _steps(offset: Index) -> list[Axis]:
    """The axes along which neighbouring points read neighbours in memory."""
    return [atom for atom, step in offset.terms if step == 1 and isinstance(atom, Axis)]


def gains(merged: Kernel, apart: Sequence[Kernel], target: Target) -> bool:
    """Whether a contraction that folds its rows takes less time than two kernels. Its tiles have
    all columns: they may read more, and keep fewer programs busy, than tiles of the best shape."""
    if target.large_programs:
        return True

    def seconds(kernel: Kernel) -> float:
        return predict(kernel, default_schedule(kernel, target), target).seconds

    launches = (len(apart) - 1) * target.launch_cost / target.chip.bandwidth
    return seconds(merged) < sum(map(seconds, apart)) + launches


def _passes(kernel: Kernel, domain: Domain, target: Target) -> int:
    """How often the rows are read: once if they stay on chip. Else once for each fold that needs
    the one before, and once more for the stores that depend on the folds."""
    if domain.row <= target.row_limit or kernel.has_dot:
        return 1
    depth: dict[int, int] = {}
    for value in kernel.values:
        below = max((depth[id(v)] for v in value.operands()), default=0)
        depth[id(value)] = below + isinstance(value, Reduce)
    row = frozenset(domain.reduction)
    stored = any(row & s.offset.axes() for s in kernel.stores)
    return max(depth.values(), default=0) + stored
