"""The predicted time of a kernel on a GPU, from its text alone: a static model to rank schedules.

A launch takes as long as the busiest resource: memory, the cache that multiprocessors share, tensor
cores, other arithmetic, exponentials. Each takes a count divided by the chip's rate. The count is
that of the busiest multiprocessor: programs are whole, so the last wave may leave some idle (wave
quantization). The number of programs that a multiprocessor holds at a time (occupancy) decides how
many bytes are on their way, which bounds the bandwidth (Little's law).

Registers and shared memory are those of the compiled kernel if there is one, else estimates.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from tilewright.ir import ops
from tilewright.ir.dtype import DType

from ..chip import GATHER, WINDOW, Chip
from ..instructions import INSTRUCTIONS
from ..kernel import Apply, Bundle, Dot, Kernel, Load, Ordered, RandomBits, Reduce
from ..kernel.analysis import analyzed, of_kernel
from ..target import Target
from .cutting import Pieces, cut, passes, seen_share
from .schedule import Schedule, points

LATENCY = 0.8e-6
"""Seconds from a request to memory until its answer, under load."""
_COPYING = 1.45
"""How much more than threads hardware that copies tiles of matrices gets from the cache: 14.7 TB/s
on an H100, measured; threads get 10, and hardware that copies boxes of images no more."""
_ROW = 15e-9
"""Seconds that this hardware takes for each row of a box: 11 to 20 ns on an H100, measured with
rows of one place."""
_BOXED = 4
"""How many latencies more a program takes to begin and end if it reads boxes: 3 to 5 us on an
H100."""
_SWAP = 8  # instructions that compare and swap an element of a sorting network, shuffles included
_MERGED = 10  # levels of the network that merges a piece from two runs


@dataclass(frozen=True, slots=True)
class Usage:
    """The resources of one program: registers of a thread, bytes of shared memory.

    warps: with those that the compiler added; 0 if their number isn't known.
    columns: of the memory of tensor cores (`Chip.columns`).
    """

    registers: int
    shared: int
    spills: int = 0
    warps: int = 0
    columns: int = 0


@dataclass(frozen=True, slots=True)
class Work:
    """The least work of a kernel.

    bytes: of the elements it reads or writes, each counted once. flops: of products of `dtype`.
    scalar: other operations, in instructions. exponentials: those of a tile of scores.
    """

    bytes: int
    flops: int
    scalar: int
    exponentials: int
    dtype: DType | None


@dataclass(frozen=True, slots=True)
class Prediction:
    """A kernel with a schedule on a chip.

    programs: of the launch. resident: those on a multiprocessor at a time. waves: tiles over
    places.
    seconds: of the launch without its overhead. bound: the name of the busiest resource.
    share: of the roofline, the time for the same bytes and products at the chip's peak rates.
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
    if usage.columns:
        limits.append(chip.columns // usage.columns)
    fits = usage.shared <= chip.shared_each and usage.registers <= chip.registers_each
    return min(limits) if fits else 0


@of_kernel
def work(kernel: Kernel | Bundle) -> Work:
    """The least work that computes a kernel."""
    if isinstance(kernel, Bundle):
        parts = [work(k) for k in kernel.members]
        return Work(
            bytes=sum(p.bytes for p in parts),
            flops=0,
            scalar=sum(p.scalar for p in parts),
            exponentials=0,
            dtype=None,
        )
    analysis = analyzed(kernel)
    seen = seen_share(kernel)
    touched: dict[object, int] = {}
    flops = scalar = exponentials = 0
    dtype = None
    for value in kernel.values:
        count = points(analysis.axes(value))
        if isinstance(value, Load):
            most = touched.get(value.buffer, 0) + count
            touched[value.buffer] = min(most, value.buffer.size)
        elif isinstance(value, Dot):
            summed = points(value.over)
            if value.segment is not None:  # each row belongs to one group
                summed //= points(analysis.axes(value.segment.first))
            flops += int(2 * count * summed * seen)
            dtype = value.input_dtype
        elif isinstance(value, Apply):
            chained = kernel.is_chained and not kernel.is_crossed
            is_score = chained and bool(set(kernel.reduction) & analysis.axes(value))
            is_weight = is_score and value.op is ops.exp
            exponentials += int(count * seen) if is_weight else 0
            # An exponential takes a multiplication too, which changes its base.
            takes = 1 if is_weight else INSTRUCTIONS.get(value.op, value.op.cost)
            scalar += int(count * takes * (seen if is_score else 1))
        elif isinstance(value, RandomBits):
            scalar += int(60 * count * seen)
        elif isinstance(value, Reduce):
            scalar += points(analysis.axes(value.arg))
        elif isinstance(value, Ordered):
            levels = (value.along.extent - 1).bit_length()
            swaps = min(levels, _MERGED) if value.run else levels * (levels + 1) // 2
            scalar += _SWAP * swaps * count
    for store in kernel.stores:
        over = analysis.axes(store.value) | analysis.index_axes(store.offset)
        count = min(points(over), store.buffer.size)
        twice = store.mode not in (None, "set")  # the old value is read first
        touched[store.buffer] = touched.get(store.buffer, 0) + count * (1 + twice)
    moved = sum(n * b.dtype.itemsize for b, n in touched.items())  # type: ignore[attr-defined]
    return Work(moved, flops, scalar, exponentials, dtype)


def roofline(needed: Work, chip: Chip, tf32: bool = False, digits: bool = False) -> float:
    """Seconds at the chip's peak rates."""
    products = needed.flops / chip.flops(needed.dtype, tf32, digits) if needed.dtype else 0.0
    return max(needed.bytes / chip.bandwidth, products)


def predict(
    kernel: Kernel | Bundle, schedule: Schedule, target: Target, usage: Usage | None = None
) -> Prediction:
    """The prediction for a kernel with a schedule. `usage`: of the compiled kernel, if it is
    known."""
    chip = target.chip
    needed = work(kernel)
    shape = cut(kernel, schedule)
    used = usage or Usage(shape.registers, shape.shared)
    warps = used.warps or schedule.warps
    resident = occupancy(chip, warps, used)
    if not resident:
        nothing = math.inf
        return Prediction(needed, used, shape.programs, 0, nothing, nothing, "occupancy", 0.0)
    places = chip.multiprocessors * resident
    busiest = -(-shape.programs // chip.multiprocessors)  # programs of one multiprocessor
    spread = busiest * chip.multiprocessors / shape.programs
    wanted = chip.bandwidth * LATENCY / chip.multiprocessors
    flying = min(1.0, min(resident, busiest) * shape.flying / wanted)
    moved = needed.bytes + _missed(kernel, schedule, shape, min(resident, busiest), chip)
    copies = schedule.persistent or (schedule.descriptors and not needed.exponentials)
    copying = _COPYING if copies else 1.0
    takes = {
        "memory": moved / (chip.bandwidth * flying) * (1.0 if busiest > 1 else spread),
        "cache": shape.loaded / (chip.cache_bandwidth * copying) * spread,
    }
    if needed.dtype is not None:
        rate = chip.flops(needed.dtype, schedule.tf32, schedule.digits)
        rate *= chip.sustained * shape.efficiency(chip)
        takes["products"] = shape.flops / rate * spread
    takes["boxes"] = _ROW * shape.rows / chip.multiprocessors * spread
    placing = GATHER * shape.gathered + WINDOW * shape.windows
    takes["gathers"] = 4 * placing / chip.vector["float32"] * spread  # integers: half the rate
    takes["arithmetic"] = 2 * (needed.scalar + shape.masking) / chip.vector["float32"] * spread
    takes["exponentials"] = needed.exponentials / chip.exponentials * spread
    bound = max(takes, key=lambda name: takes[name])
    # A program that is alone waits for its first loads and its last stores, and in attention for
    # those of each step with too few stages. One that walks through tiles loads for the next tile
    # meanwhile. Warps that only copy are ahead with two stages already.
    rounds = 1 if schedule.persistent else -(-shape.programs // places)
    least = 2 if schedule.specialized else chip.stages
    waits = 2 + (_BOXED if schedule.box else 0)
    waits += shape.steps if needed.exponentials and shape.stages < least else 0
    # A product of few tiles was measured: places that stay empty hide nothing.
    hiding = resident if needed.dtype is None else min(resident, busiest)
    seconds = takes[bound] + rounds * waits * LATENCY / hiding
    # Warps that find places issue no products meanwhile; those of other programs do.
    seconds += min(takes["gathers"], takes.get("products", 0.0)) / hiding
    # Spills stand in line with the loads and stores of the kernel's own.
    threads = shape.programs * warps * chip.warp
    spilled = 2 * used.spills * shape.steps * threads / chip.cache_bandwidth * spread
    seconds += spilled
    bound = "spills" if spilled > takes[bound] else bound
    if needed.exponentials:
        # A warp group computes weights between its products, or beside some of them; products of
        # other groups hide part of the rest.
        between = takes["exponentials"] + takes["arithmetic"]
        between = max(between - shape.beside * takes["products"], 0.0)
        seconds += min(between, takes["products"]) / max(resident * schedule.num_warps // 4, 1)
    share = roofline(needed, chip, schedule.tf32, schedule.digits) / seconds
    waves = shape.programs / places
    programs = min(shape.programs, schedule.persistent or shape.programs)
    return Prediction(needed, used, programs, resident, waves, seconds, bound, share)


def _missed(
    kernel: Kernel | Bundle, schedule: Schedule, shape: Pieces, resident: int, chip: Chip
) -> int:
    """Bytes that are read from memory again, because the rows that programs walk along at a time
    don't fit in the cache."""
    if not schedule.looped or isinstance(kernel, Bundle) or kernel.has_dot or kernel.is_chained:
        return 0
    once = shape.loaded // passes(kernel)
    walked = once // shape.programs * resident * chip.multiprocessors
    return shape.loaded - once if walked > chip.cached else 0
