"""The form of a kernel: the axis and number of its lanes, and the cut of its work.

Along a reduction axis lanes hold neighbours of one row ("rows"). Along a parallel axis they hold
neighbouring rows, each with its own reduction ("columns"); kernels without reductions always have
this form. The work is cut by size alone, so results don't depend on the number of threads.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.op import Fold

from ..kernel import ALONG, Apply, Dot, Kernel, Load, RandomBits, Reduce, Scan, Value
from ..kernel.analysis import Analysis, analyzed
from ..kernel.index import Axis, Data, Index, walk
from .cuts import lanes_for
from .machine import Machine
from .schedule import DEFAULT, Schedule

HEAVY = 8  # from this Op.cost on a value is worth keeping, and fewer lanes at a time pay
ROWS_ACROSS = 256
STRIDES = {1: 1.0, -1: 0.9, 2: 0.7, 3: 0.55, 4: 0.45}
"""The distances of lanes that are moved as whole vectors, and how well each one suits."""
CHUNK = 1 << 17  # work of one chunk: some 30 µs


@dataclass(frozen=True)
class Form:
    """vector: the axis of the lanes, None if points are computed one by one.

    outer: the other parallel axes, the innermost one last. rows: the points of these in a chunk.
    block: the positions of the vector axis in a chunk, if it is parallel. peeled: whether whole
    vectors have a loop of their own, without masks; that is worth the text only where little is
    computed. cut: whether the vector axis is computed in the pieces between the changes of guards
    (pieces.py).
    """

    vector: Axis | None
    lanes: int
    outer: tuple[Axis, ...]
    rows: int
    block: int
    peeled: bool
    cut: bool = False

    def chunks(self, kernel: Kernel) -> int:
        rows = math.prod(a.extent for a in self.outer)
        count = -(-rows // self.rows)
        if self.vector in kernel.parallel:
            assert self.vector is not None
            count *= -(-self.vector.extent // self.block)
        return count


def form_of(
    kernel: Kernel, machine: Machine, like: Form | None = None, schedule: Schedule = DEFAULT
) -> Form:
    """The form of a kernel. like: a form whose axis and lanes it takes, if it has that axis."""
    analysis = analyzed(kernel)
    work = work_per_point(kernel)
    vector = _vector_axis(kernel, analysis, machine, schedule.along)
    lanes = 1 if vector is None else lanes_along(kernel, machine, vector, schedule)
    if like is not None and like.vector is not None:
        named = {a.name: a for a in (*kernel.parallel, *kernel.reduction) if a.extent != 1}
        vector = named.get(like.vector.name, vector)
        lanes = like.lanes
    peeled = vector is not None and _is_light(kernel)
    parallel = tuple(a for a in kernel.parallel if a.extent != 1)
    outer = _outer(kernel, [a for a in parallel if a is not vector])
    if like is not None:
        order = [a.name for a in like.outer]
        outer = tuple(sorted(outer, key=lambda a: order.index(a.name) if a.name in order else -1))
    row = math.prod(a.extent for a in kernel.reduction)
    if kernel.is_update and not all(a.extent for a in kernel.parallel):
        return Form(vector, lanes, outer, 1, 1, peeled)
    if not kernel.reduction and vector is not None and _crosses(kernel, vector):
        # A step reads one element of a line, and the next rows read the line again: keep few lines.
        lanes = machine.vector_bytes // 4
        return Form(vector, lanes, outer, ROWS_ACROSS, lanes, False)
    cut = None
    if peeled and vector in kernel.parallel and not kernel.reduction and not kernel.is_update:
        assert vector is not None
        cut = lanes_for(kernel, vector, lanes, machine.vector_bytes // 4)
        lanes = cut or lanes
    points = max(int((schedule.work or CHUNK) // max(work * max(row, 1), 1)), 1)
    if vector is None or vector not in kernel.parallel:
        return Form(vector, lanes, outer, points, 1, peeled)
    if points >= 2 * vector.extent:
        extent = max(vector.extent, 1)
        rows = max(points // extent, 1)
        return Form(vector, lanes, outer, rows, extent, peeled, cut is not None)
    pieces = max(round(vector.extent / points), 1)
    block = -(-vector.extent // pieces)
    block = max(-(-block // lanes) * lanes, lanes)
    return Form(vector, lanes, outer, 1, block, peeled, cut is not None)


def _outer(kernel: Kernel, axes: list[Axis]) -> tuple[Axis, ...]:
    """Axes in the order in which their points lie in the output: rows that follow each other there
    are computed one after another."""
    if len(axes) > 1 and kernel.stores and not kernel.is_update:
        steps = kernel.stores[0].offset
        axes = sorted(axes, key=lambda a: abs(steps.coefficient(a)), reverse=True)
    return tuple(axes)


def _crosses(kernel: Kernel, vector: Axis) -> bool:
    """Whether large buffers are read along the innermost of the other axes."""
    rest = [a for a in kernel.parallel if a.extent > 8 and a is not vector]
    if not rest or vector.extent < 8:
        return False
    inner = rest[-1]
    return any(
        isinstance(v, Load)
        and v.offset.coefficient(inner) == 1
        and abs(v.offset.coefficient(vector)) > 1
        and v.buffer.size > 1 << 12
        for v in kernel.values
    )


def _is_light(kernel: Kernel) -> bool:
    if len(kernel.values) > 40 or kernel.draws:
        return False
    return all(not isinstance(v, Apply) or v.op.cost < HEAVY for v in kernel.values)


def work_per_point(kernel: Kernel) -> float:
    """The work of a point, roughly, in quarters of a nanosecond."""
    work = 1.0
    for value in kernel.values:
        if isinstance(value, Apply):
            work += value.op.cost / 2
        elif isinstance(value, Load):
            work += value.buffer.dtype.itemsize / 4
        elif isinstance(value, RandomBits):
            work += 30
        elif isinstance(value, (Reduce, Dot)):
            work += 1
    return work + sum(s.buffer.dtype.itemsize / 4 for s in kernel.stores)


def lanes_along(kernel: Kernel, machine: Machine, axis: Axis, schedule: Schedule = DEFAULT) -> int:
    """The number of lanes: two registers of them where much is computed, else four, for loads in
    flight and partial sums."""
    if schedule.vectors is not None:
        return machine.vector_bytes // 4 * schedule.vectors
    heavy = widest = 0
    for value in kernel.values:
        if isinstance(value, Apply):
            heavy += value.op.cost >= HEAVY
        heavy += isinstance(value, RandomBits)
        if isinstance(value, (Load, Apply)) and value.dtype.itemsize == 8:
            widest += 1
    native = machine.vector_bytes // 4
    lanes = native * (2 if heavy or widest or len(kernel.values) > 24 else 4)
    # Lanes that don't exist cost as much as others along a fold. Elsewhere they need masked stores,
    # which are slow on processors without registers for masks.
    most = axis.extent if axis in kernel.parallel else 2 * axis.extent - 1
    while lanes > native and lanes > most:
        lanes //= 2
    return lanes


def _vector_axis(
    kernel: Kernel, analysis: Analysis, machine: Machine, chosen: int | None
) -> Axis | None:
    along = [v for v in kernel.values if isinstance(v, ALONG)]
    scanned = {v.along for v in along if not _folds_in_lanes(v)}
    candidates = [a for a in kernel.parallel if a.extent != 1]
    if not kernel.is_update:
        candidates += [a for a in kernel.reduction if a.extent != 1 and a not in scanned]
    scores = {a: _score(kernel, analysis, a, machine) for a in candidates}
    # Among equals the innermost axis wins.
    best = max(reversed(candidates), key=lambda a: scores[a], default=None)
    if chosen is not None:
        axes = (*kernel.parallel, *kernel.reduction)
        best = axes[chosen] if chosen < len(axes) and axes[chosen] in candidates else best
    if best is None or ((along or kernel.is_update) and scores[best] < 0.6):
        return None
    if kernel.is_update and not _apart(kernel, best):
        return None
    return best


def _folds_in_lanes(value: Value) -> bool:
    """Whether a value along an axis may have neighbours of it in its lanes: a running extremum,
    whose lanes are folded with each other in any order."""
    return isinstance(value, Scan) and value.op in (Fold.MAX, Fold.MIN)


def _apart(kernel: Kernel, axis: Axis) -> bool:
    return all(axis in s.offset.axes() for s in kernel.stores)


def _score(kernel: Kernel, analysis: Analysis, axis: Axis, machine: Machine) -> float:
    """How well lanes along an axis suit the kernel's loads and stores: 1 if each moves
    neighbours."""
    total = weights = 0.0
    full = set(kernel.reduction)
    places: list[tuple[Index, float]] = [
        (v.offset, 1.0 + 3 * bool(full & analysis.axes(v)))
        for v in kernel.values
        if isinstance(v, Load)
    ]
    places += [
        (s.offset, 1.5 + 3 * bool(full & analysis.index_axes(s.offset))) for s in kernel.stores
    ]
    for offset, weight in places:
        weights += weight
        step = offset.coefficient(axis)
        inside = any(
            axis in analysis.index_axes(Index(((a, 1),)))
            for a in walk(offset)
            if not isinstance(a, Axis)
        )
        if step in STRIDES and not inside:
            total += weight * STRIDES[step]
        elif step == 0 and not inside:
            total += weight * 0.5
        elif any(isinstance(a, Data) for a in walk(offset)):
            total += weight * 0.1
    lanes = machine.vector_bytes // 2
    used = axis.extent / (-(-axis.extent // lanes) * lanes) if axis.extent else 0.0
    return total / max(weights, 1e-9) * (0.25 + 0.75 * used)
