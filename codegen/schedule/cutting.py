"""Kernels cut by a schedule: the number of programs, and the work and resources of one program."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..chip import Chip
from ..kernel import Bundle, Dot, Guard, Kernel, Load, Value, attention, collect
from ..kernel.analysis import analyzed
from ..kernel.box import tiles
from ..kernel.columns import columns
from ..kernel.index import Axis, FloorDiv, Index, Mod
from ..kernel.roles import Roles, roles
from .registers import ADDRESSES, elements_held, multiplies_in_threads, product_registers
from .schedule import Schedule, head_block, points
from .turned import sides

REGISTERS = 1 << 16  # of a multiprocessor: compilers give a thread no more than its share
VECTOR = 16  # bytes of the widest load
LOOKUP = 2  # stages in which a table says where the rows lie that are copied afterwards
_COMPUTING = 232  # the most registers of a thread that computes, if others copy
_MASK = 2  # operations: a comparison and a choice
_WINDOW = 5  # registers for an element of windows with summed neighbours: offsets and their bounds


@dataclass(frozen=True, slots=True)
class Pieces:
    """A kernel cut by a schedule.

    programs: their number. steps: of the loop of one program. loaded: bytes that programs read
    together. flying: bytes that one program has asked for at a time. gathered: elements that are
    loaded one by one. windows: vectors of windows, each with a place and bounds of its own. rows:
    of boxes that hardware copies. flops: of whole tiles. columns: of a warp group's product, 0 if
    a tile has too few rows for one. held: elements that a thread sums in a product without tensor
    cores.
    stages: the steps of attention whose operands are held at a time. masking: operations of masks
    on scores that are all seen. beside: the share of products under way while a warp group makes
    weights. registers, shared: estimates for one thread and for one program.
    """

    programs: int
    steps: int
    loaded: int
    flying: float
    flops: int
    columns: int
    registers: int
    shared: int
    gathered: int = 0
    windows: int = 0
    rows: int = 0
    held: int = 0
    stages: int = 1
    masking: int = 0
    beside: float = 0.0

    def efficiency(self, chip: Chip) -> float:
        """The share of their peak that products reach. Shared memory gives 128 bytes of operands a
        cycle: tensor cores read a row of 64 as long as they multiply 64 columns, and a thread reads
        a number in the time of four products."""
        if self.held:
            return min(1.0, math.sqrt(self.held) / 8)
        if chip.product != "wgmma.mma_async":
            return 1.0
        return min(1.0, 2 * self.columns / (64 + self.columns)) if self.columns else 0.5


def cut(kernel: Kernel | Bundle, schedule: Schedule) -> Pieces:
    if isinstance(kernel, Bundle):
        parts = [cut(k, schedule) for k in kernel.members]
        largest = max(parts, key=lambda p: p.programs)
        return Pieces(
            programs=sum(p.programs for p in parts),
            steps=largest.steps,
            loaded=sum(p.loaded for p in parts),
            flying=largest.flying,
            flops=0,
            columns=0,
            registers=largest.registers,
            shared=0,
        )
    if kernel.is_crossed:
        return _crossed_cut(kernel, schedule)
    if kernel.is_chained:
        return _attention_cut(kernel, schedule)
    if kernel.has_dot:
        return _dot_cut(kernel, schedule)
    return _tile_cut(kernel, schedule)


def _tiles(extent: int, block: int) -> int:
    return -(-extent // block)


def row_tiles(role: Roles, schedule: Schedule) -> int:
    """The number of a contraction's tiles along its rows."""
    return tiles(schedule.box, role.m) if schedule.box else role.row_tiles(schedule.block_m)


def _dot_cut(kernel: Kernel, schedule: Schedule) -> Pieces:
    analysis = analyzed(kernel)
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    role = roles(kernel, analysis, dots[0])
    m, n, k = schedule.block_m, schedule.block_n, schedule.block_k
    programs = row_tiles(role, schedule) * _tiles(points(role.n), n) * points(role.batch)
    length = points(role.k)
    if role.group is not None and not role.has_segments_of_rows:
        length = _tiles(length, role.group.extent)  # of one segment, as if all were alike
    steps = _tiles(length, k)
    size = 6 if schedule.digits else dots[0].input_dtype.itemsize
    step = (m + n) * k * size * len(dots)
    registers = product_registers(kernel, analysis, role, dots, schedule)
    rows, columns = (n, m) if schedule.box else (m, n)  # of the tensor cores' products
    gathered = windows = 0
    for dot in dots if not schedule.box else ():
        for value, length in ((dot.a, m), (dot.b, n)):
            if _is_whole(value):
                vectors = programs * steps * length * k * size // VECTOR
                windows += vectors * isinstance(value, Guard)
            else:
                gathered += programs * steps * length * k
                each = length * k // (schedule.num_warps * 32)
                registers += each * (_WINDOW if _runs_along(value, role.k) else 1)
    return Pieces(
        programs=programs,
        steps=steps,
        loaded=programs * steps * step,
        flying=step * max(schedule.num_stages - 1, 1),
        flops=2 * programs * m * n * steps * k * len(dots),
        columns=0 if rows < 64 else min(columns, m * n // (64 * max(schedule.num_warps // 4, 1))),
        registers=_shared_out(registers, schedule),
        shared=step * schedule.num_stages + _exchanged(kernel, schedule),
        gathered=gathered,
        windows=windows,
        rows=programs * steps * (m // schedule.box[-1]) * len(dots) if schedule.box else 0,
        held=elements_held(schedule) if multiplies_in_threads(dots[0], schedule) else 0,
    )


def _shared_out(registers: int, schedule: Schedule) -> int:
    """The registers that a program asks for each thread. Warps that copy give theirs to those that
    compute."""
    if not schedule.specialized or registers > _COMPUTING:
        return registers
    return min(registers, REGISTERS // (schedule.warps * 32) // 8 * 8)


def _exchanged(kernel: Kernel, schedule: Schedule) -> int:
    """Bytes of shared memory through which threads exchange sums, so that each stores neighbours. A
    program that ends with its tile exchanges them in the memory of its operands. If hardware copies
    results from shared memory, it holds all of a part, and beside it what the epilogue loads."""
    if not schedule.persistent:
        return 0
    part = schedule.block_m * schedule.block_n // schedule.parts
    sizes = [s.buffer.dtype.itemsize for s in kernel.stores]
    if not schedule.descriptors:
        return part * max(sizes) // 2
    factors = {id(v) for d in kernel.values if isinstance(d, Dot) for v in (d.a, d.b)}
    loads = any(
        isinstance(v, Load)
        and id(v) not in factors
        and v.buffer.size >= kernel.stores[0].buffer.size
        for v in kernel.values
    )
    return part * sum(sizes) + part * max(sizes) // 2 * loads


def _loads(value: Value) -> list[Load]:
    seen: dict[int, Value] = {}
    collect(value, seen)
    return [v for v in seen.values() if isinstance(v, Load)]


def _is_whole(value: Value) -> bool:
    """Whether an operand is read by vectors: its elements are neighbours along an axis on which no
    guard and no other part of their place depends."""
    seen: dict[int, Value] = {}
    collect(value, seen)
    guarded = {
        axis
        for guard in seen.values()
        if isinstance(guard, Guard)
        for index in guard.indices()
        for axis in index.axes()
    }
    return all(_neighbours(load.offset) - guarded for load in _loads(value))


def _neighbours(offset: Index) -> set[Axis]:
    """The axis along which an offset grows by 1. None if there are two, as along windows: vectors
    would begin anywhere."""
    steps = {a for a, c in offset.terms if c == 1 and isinstance(a, Axis)}
    rest = (atom.index.axes() for atom, _ in offset.terms if isinstance(atom, (FloorDiv, Mod)))
    return steps.difference(*rest) if len(steps) == 1 else set()


def _runs_along(value: Value, axes: tuple[Axis, ...]) -> bool:
    """Whether most elements that are neighbours in memory are neighbours along one of `axes`."""
    steps = [a for v in _loads(value) for a in v.offset.axes() if v.offset.coefficient(a) == 1]
    return max(steps, key=lambda a: a.extent, default=None) in axes


def _attention_cut(kernel: Kernel, schedule: Schedule) -> Pieces:
    parts = attention.roles(kernel)
    assert parts is not None
    own = parts.query if parts.walked is parts.key else parts.key
    walked = parts.walked or parts.key
    inner, outer = head_block(parts.inner), head_block(parts.outer)
    m, n = schedule.block_m, schedule.block_n
    programs = _tiles(own.extent, m) * points(parts.batch)
    steps = max(1, round(_tiles(walked.extent, n) * seen_share(kernel)))
    size = parts.products.input_dtype.itemsize
    products = inner + (outer if parts.back is not None else 0)
    step = n * (inner + outer) * size
    threads = schedule.num_warps * 32
    summed = sum(head_block(width) for width in parts.widths)
    scores = m * n * (2 if parts.back is not None else 1)
    kept = scores * size // 4 if schedule.ahead else 0  # weights of the step before
    stages = max(schedule.num_stages - LOOKUP * parts.looks_up, 1)
    return Pieces(
        programs=programs,
        steps=steps,
        loaded=programs * (steps * step + m * products * size),
        flying=step * max(stages - 1, 1),
        flops=2 * programs * steps * m * n * (products + summed),
        columns=n,
        registers=_shared_out(
            min((m * summed + scores + kept) // threads + 2 * ADDRESSES, schedule.registers or 255),
            schedule,
        ),
        shared=step * stages + m * products * size,
        stages=stages,
        # Warps of their own take one loop, in which each block has a mask.
        masking=programs * steps * m * n * _MASK
        if schedule.specialized and parts.causal is not None
        else 0,
        beside=summed / (products + summed) if schedule.ahead else 0.0,
    )


def _tile_cut(kernel: Kernel, schedule: Schedule) -> Pieces:
    analysis = analyzed(kernel)
    rows, length = points(kernel.parallel), points(kernel.reduction)
    reduction = set(kernel.reduction)
    programs = _tiles(rows, schedule.block)
    if any(v.run for v in kernel.ordered):
        programs = rows * _tiles(length, schedule.block_r)
    elif kernel.is_grouped:
        programs = _tiles(rows, schedule.block_n) * _tiles(length, schedule.block)
    if kernel.is_update:
        length = 1
    block = schedule.block * (schedule.block_r if length > 1 else schedule.turned or 1)
    if schedule.turned and (found := sides(kernel)) is not None:
        down, across = points(found.down), points(found.across)
        programs = _tiles(down, schedule.turned) * _tiles(across, schedule.block)
        programs *= points(found.outer)
    if kernel.is_grouped:
        block *= schedule.block_r * schedule.block_n
    loads = [v for v in kernel.values if isinstance(v, Load)]
    full = [v for v in loads if not length > 1 or analysis.axes(v) & reduction]
    if kernel.is_grouped:
        full = [v for v in loads if analysis.axes(v) >= reduction.union(kernel.parallel)]
    times = passes(kernel) if schedule.looped else 1

    def read(load: Load) -> int:
        """The bytes that programs read; what all rows meet is read by each of them."""
        axes = analysis.axes(load)
        again = programs if length > 1 and axes and axes <= reduction else 1
        return points(axes) * load.buffer.dtype.itemsize * again

    loaded = sum(map(read, loads)) * times
    threads = schedule.num_warps * 32
    held = max(block // threads, 1)
    return Pieces(
        programs=programs,
        steps=_tiles(length, schedule.block_r) * times if schedule.looped else 1,
        loaded=loaded,
        # Stores are not waited for, but a kernel with nothing else is as fast as its stores.
        flying=block * sum(b.dtype.itemsize for b in [v.buffer for v in full] or kernel.outputs),
        flops=0,
        columns=0,
        registers=min(held * (len(full) + 1) + ADDRESSES // 2, 255, REGISTERS // threads),
        shared=0,
    )


def _crossed_cut(kernel: Kernel, schedule: Schedule) -> Pieces:
    """Rows with the folds of their columns: each is read once, while the next ones are copied to
    shared memory."""
    found, analysis = columns(kernel), analyzed(kernel)
    assert found is not None
    loads = [v for v in kernel.values if isinstance(v, Load)]
    rows = [v for v in loads if analysis.axes(v) >= {*found.down, *found.across}]
    step = schedule.block * schedule.block_r * sum(v.buffer.dtype.itemsize for v in rows)
    threads = schedule.num_warps * 32
    held = max(schedule.block * schedule.block_r // threads, 1)
    programs = points(kernel.parallel)
    once = [v for v in loads if analysis.axes(v).isdisjoint(found.down)]
    loaded = sum(points(analysis.axes(v)) * v.buffer.dtype.itemsize for v in loads)
    again = programs * schedule.block_r * sum(v.buffer.dtype.itemsize for v in once)
    return Pieces(
        programs=programs,
        steps=_tiles(points(found.down), schedule.block),
        loaded=loaded + again,
        flying=step * max(schedule.num_stages - 1, 1),
        flops=0,
        columns=0,
        registers=min(
            held * (len(loads) + len(found.folds) + 2) + ADDRESSES, 255, REGISTERS // threads
        ),
        shared=step * max(schedule.num_stages - 1, 0),
    )


def passes(kernel: Kernel) -> int:
    """How often a row is read if it doesn't stay on chip."""
    analysis = analyzed(kernel, True)
    deepest = max((analysis.depth(v) for v in kernel.values), default=0)
    row = set(kernel.reduction)
    stored = (analysis.depth(s.value) + 1 for s in kernel.stores if row & analysis.axes(s.value))
    return max(deepest, *stored, 1)


def seen_share(kernel: Kernel) -> float:
    """The share of scores that a causal mask leaves."""
    parts = attention.roles(kernel) if kernel.is_chained else None
    if parts is None or parts.causal is None:
        return 1.0
    queries, keys = parts.query.extent, parts.key.extent
    whole = min(queries, keys)
    return (whole * (whole + 1) / 2 + max(queries - keys, 0) * keys) / (queries * keys)
