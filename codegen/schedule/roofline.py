"""What a kernel would take on a GPU, from its text alone: a static model that ranks schedules.

A launch takes as long as the busiest of what it needs: memory, the cache that multiprocessors
share, tensor cores, other arithmetic, exponentials. Each is a count divided by the chip's rate, and
the count is that of the busiest multiprocessor: programs are whole, so the last wave may leave some
of them idle (wave quantization). How many programs a multiprocessor holds at a time (occupancy)
decides how many bytes are on their way, which bounds the bandwidth (Little's law).

Registers and shared memory are those of a compiled kernel where there is one, else estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir.dtype import DType

from .. import attention
from ..analysis import Analysis
from ..chip import Chip
from ..kernel import Apply, Bundle, Dot, Kernel, Load, RandomBits, Reduce
from ..roles import roles
from ..target import Target
from .schedule import Schedule, head_block, points

LATENCY = 0.8e-6
"""Seconds from asking for memory to having it, under load."""
_ADDRESSES = 40  # registers beside those of tiles: addresses, masks, sizes


@dataclass(frozen=True, slots=True)
class Usage:
    """What one program takes of a multiprocessor: registers of a thread, bytes of shared memory."""

    registers: int
    shared: int
    spills: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel has to do at least.

    bytes: of each buffer, the elements it reads or writes, once. flops: of products of `dtype`.
    scalar: other operations, in units of Op.cost. exponentials: of a tile of scores.
    """

    bytes: int
    flops: int
    scalar: int
    exponentials: int
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A kernel with a schedule on a chip.

    programs: of the launch; resident: at a time on a multiprocessor; waves: programs over places.
    seconds: of the launch without its overhead. bound: what takes longest.
    share: of the roofline, which needs the same bytes and products at the chip's peak rates.
    """

    work: Work
    usage: Usage
    programs: int
    resident: int
    waves: float
    seconds: float
    bound: str
    share: float


def occupancy(chip: Chip, warps: int, usage: Usage) -> int:
    """How many programs of so many warps a multiprocessor holds at a time."""
    each = usage.registers * chip.warp
    granules = -(-each // chip.granule) * chip.granule
    held = chip.registers // granules if granules else chip.warps
    # Registers are in four parts, each of which holds whole warps.
    limits = [chip.warps // warps, chip.programs, held // 4 * 4 // warps]
    if usage.shared:
        limits.append(chip.shared // (usage.shared + chip.shared_own))
    fits = usage.shared <= chip.shared_each and usage.registers <= chip.registers_each
    return min(limits) if fits else 0


def work(kernel: Kernel | Bundle) -> Work:
    """The least that computing a kernel takes."""
    if isinstance(kernel, Bundle):
        parts = [work(k) for k in kernel.members]
        sums = (sum(getattr(p, n) for p in parts) for n in ("bytes", "flops", "scalar"))
        return Work(*sums, exponentials=0, dtype=parts[0].dtype)
    analysis = Analysis(kernel)
    seen = _seen(kernel)
    touched: dict[object, int] = {}
    flops = scalar = exponentials = 0
    dtype = None
    for value in kernel.values:
        count = points(analysis.axes(value))
        if isinstance(value, Load):
            most = touched.get(value.buffer, 0) + count
            touched[value.buffer] = min(most, value.buffer.size)
        elif isinstance(value, Dot):
            flops += int(2 * count * points(value.over) * seen)
            dtype = value.input_dtype
        elif isinstance(value, Apply):
            is_score = kernel.is_chained and set(kernel.reduction) & analysis.axes(value)
            exponentials += int(count * seen) if is_score and value.op.name == "exp" else 0
            scalar += int(count * value.op.cost * (seen if is_score else 1))
        elif isinstance(value, RandomBits):
            scalar += int(60 * count * seen)
        elif isinstance(value, Reduce):
            scalar += points(analysis.axes(value.arg))
    for store in kernel.stores:
        over = analysis.axes(store.value) | analysis.index_axes(store.offset)
        read = touched.get(store.buffer, 0) if store.mode is None else store.buffer.size
        touched[store.buffer] = read + min(points(over), store.buffer.size)
    moved = sum(n * b.dtype.itemsize for b, n in touched.items())  # type: ignore[attr-defined]
    return Work(moved, flops, scalar, exponentials, dtype)


def _seen(kernel: Kernel) -> float:
    """The share of scores that a causal mask leaves."""
    parts = attention.roles(kernel) if kernel.is_chained else None
    if parts is None or parts.causal is None:
        return 1.0
    queries, keys = parts.query.extent, parts.key.extent
    whole = min(queries, keys)
    return (whole * (whole + 1) / 2 + max(queries - keys, 0) * keys) / (queries * keys)


def roofline(needed: Work, chip: Chip, tf32: bool = False) -> float:
    """Seconds at the chip's peak rates."""
    products = needed.flops / chip.flops(needed.dtype, tf32) if needed.dtype else 0.0
    return max(needed.bytes / chip.bandwidth, products)


def predict(
    kernel: Kernel | Bundle, schedule: Schedule, target: Target, usage: Usage | None = None
) -> Prediction:
    """How a kernel fares with a schedule. `usage` is that of the compiled kernel if it is known."""
    chip = target.chip
    needed = work(kernel)
    shape = _shape(kernel, schedule)
    used = usage or Usage(shape.registers, shape.shared)
    resident = occupancy(chip, schedule.num_warps, used)
    if not resident:
        nothing = math.inf
        return Prediction(needed, used, shape.programs, 0, nothing, nothing, "occupancy", 0.0)
    places = chip.multiprocessors * resident
    busiest = -(-shape.programs // chip.multiprocessors)  # programs of one multiprocessor
    spread = busiest * chip.multiprocessors / shape.programs
    wanted = chip.bandwidth * LATENCY / chip.multiprocessors
    flying = min(1.0, min(resident, busiest) * shape.flying / wanted)
    takes = {
        "memory": needed.bytes / (chip.bandwidth * flying) * (1.0 if busiest > 1 else spread),
        "cache": shape.loaded / chip.cache_bandwidth * spread,
    }
    if needed.dtype is not None:
        rate = chip.flops(needed.dtype, schedule.tf32) * shape.efficiency(chip)
        takes["products"] = shape.flops / rate * spread
    takes["arithmetic"] = 2 * needed.scalar / chip.vector["float32"] * spread
    takes["exponentials"] = needed.exponentials / chip.exponentials * spread
    if used.spills:
        threads = shape.programs * schedule.num_warps * chip.warp
        takes["spills"] = 2 * used.spills * shape.steps * threads / chip.cache_bandwidth
    bound = max(takes, key=lambda name: takes[name])
    # The first loads of a program and its last stores are waited for if it is alone.
    rounds = -(-shape.programs // places)
    seconds = takes[bound] + rounds * 2 * LATENCY / resident
    share = roofline(needed, chip, schedule.tf32) / seconds
    waves = shape.programs / places
    return Prediction(needed, used, shape.programs, resident, waves, seconds, bound, share)


@dataclass(frozen=True, slots=True)
class _Shape:
    """A kernel cut by a schedule.

    programs: how many. steps: of the loop of one. loaded: bytes that programs read together,
    flying: those one has asked for at a time. flops: of whole tiles. columns: of the product of a
    warp group, 0 if a tile has too few rows for one. registers, shared: estimates.
    """

    programs: int
    steps: int
    loaded: int
    flying: float
    flops: int
    columns: int
    registers: int
    shared: int

    def efficiency(self, chip: Chip) -> float:
        """The share of their peak that tensor cores reach with operands from shared memory, which
        gives 128 bytes a cycle: a row of 64 takes as long to read as 64 columns to multiply."""
        if chip.product != "wgmma.mma_async":
            return 1.0
        return min(1.0, 2 * self.columns / (64 + self.columns)) if self.columns else 0.5


def _shape(kernel: Kernel | Bundle, schedule: Schedule) -> _Shape:
    if isinstance(kernel, Bundle):
        parts = [_shape(k, schedule) for k in kernel.members]
        largest = max(parts, key=lambda p: p.programs)
        return _Shape(
            programs=sum(p.programs for p in parts),
            steps=largest.steps,
            loaded=sum(p.loaded for p in parts),
            flying=largest.flying,
            flops=0,
            columns=0,
            registers=largest.registers,
            shared=0,
        )
    if kernel.is_chained:
        return _attention_shape(kernel, schedule)
    if kernel.has_dot:
        return _dot_shape(kernel, schedule)
    return _tile_shape(kernel, schedule)


def _tiles(extent: int, block: int) -> int:
    return -(-extent // block)


def _dot_shape(kernel: Kernel, schedule: Schedule) -> _Shape:
    analysis = Analysis(kernel)
    dots = [v for v in kernel.values if isinstance(v, Dot)]
    role = roles(kernel, analysis, dots[0])
    m, n, k = schedule.block_m, schedule.block_n, schedule.block_k
    programs = _tiles(points(role.m), m) * _tiles(points(role.n), n) * points(role.batch)
    steps = _tiles(points(role.k), k)
    size = dots[0].input_dtype.itemsize
    step = (m + n) * k * size * len(dots)
    held = m * n // (schedule.num_warps * 32)  # elements of a tile that a thread has
    # All that is stored is in registers at once, and so are masks where tiles reach over the end.
    ends = points(role.m) % m or points(role.n) % n or points(role.k) % k
    registers = held * max(len(dots), len(kernel.stores)) + _ADDRESSES + (48 if ends else 0)
    return _Shape(
        programs=programs,
        steps=steps,
        loaded=programs * steps * step,
        flying=step * max(schedule.num_stages - 1, 1),
        flops=2 * programs * m * n * steps * k * len(dots),
        columns=0 if m < 64 else min(n, m * n // (64 * max(schedule.num_warps // 4, 1))),
        registers=registers,
        shared=step * schedule.num_stages,
    )


def _attention_shape(kernel: Kernel, schedule: Schedule) -> _Shape:
    parts = attention.roles(kernel)
    assert parts is not None
    own = parts.query if parts.walked is parts.key else parts.key
    walked = parts.walked or parts.key
    inner, outer = head_block(parts.inner), head_block(parts.outer)
    m, n = schedule.block_m, schedule.block_n
    programs = _tiles(own.extent, m) * points(parts.batch)
    steps = max(1, round(_tiles(walked.extent, n) * _seen(kernel)))
    size = parts.products.input_dtype.itemsize
    products = inner + (outer if parts.back is not None else 0)
    widths = [
        outer if parts.outer in d.axes() else inner for _, d in parts.stores if d is not None
    ]
    step = n * (inner + outer) * size
    threads = schedule.num_warps * 32
    scores = m * n * (2 if parts.back is not None else 1)
    return _Shape(
        programs=programs,
        steps=steps,
        loaded=programs * (steps * step + m * products * size),
        flying=step * max(schedule.num_stages - 1, 1),
        flops=2 * programs * steps * m * n * (products + sum(widths)),
        columns=n,
        registers=min((m * sum(widths) + scores) // threads + 2 * _ADDRESSES, 255),
        shared=step * schedule.num_stages + m * products * size,
    )


def _tile_shape(kernel: Kernel, schedule: Schedule) -> _Shape:
    analysis = Analysis(kernel)
    rows, length = points(kernel.parallel), points(kernel.reduction)
    reduction = set(kernel.reduction)
    if kernel.is_update:
        length = 1
    block = schedule.block * (schedule.block_r if length > 1 else 1)
    loads = [v for v in kernel.values if isinstance(v, Load)]
    full = [v for v in loads if not length > 1 or analysis.axes(v) & reduction]
    passes = _passes(analysis, kernel) if schedule.looped else 1
    loaded = sum(points(analysis.axes(v)) * v.buffer.dtype.itemsize for v in loads) * passes
    threads = schedule.num_warps * 32
    held = max(block // threads, 1)
    return _Shape(
        programs=_tiles(rows, schedule.block),
        steps=_tiles(length, schedule.block_r) * passes if schedule.looped else 1,
        loaded=loaded,
        # Stores are not waited for, but a kernel that has nothing else is as fast as they are.
        flying=block * sum(b.dtype.itemsize for b in [v.buffer for v in full] or kernel.outputs),
        flops=0,
        columns=0,
        registers=min(held * (len(full) + 1) + _ADDRESSES // 2, 255),
        shared=0,
    )


def _passes(analysis: Analysis, kernel: Kernel) -> int:
    """How often a row is read that doesn't stay on chip."""
    deepest = max((analysis.depth(v) for v in kernel.values), default=0)
    stored = any(set(kernel.reduction) & analysis.axes(s.value) for s in kernel.stores)
    return max(deepest + stored, 1)
