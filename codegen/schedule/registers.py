"""Estimates of the registers that a thread of a contraction takes, fitted to what compilers made of
products, activations, their gradients and norms for sm_90."""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import FLOAT8

from ..kernel import Apply, Dot, Guard, Kernel, Reduce, Value
from ..kernel.analysis import Analysis
from ..kernel.roles import Roles
from .schedule import Schedule, points

_MOST, _DOUBT = 255, 16  # the most that a thread can have; the spread among compiler versions
ADDRESSES = 40  # beside tiles: addresses, masks, sizes
_MASKS, _BOUNDS = 72, 48  # more, where tiles reach over the end; and for the bounds of windows
_FACTORS = 48  # for a product without tensor cores, beside one register for each sum
_HARD, _WITHIN = 12, 2  # an op of this Op.cost or more has so many further tiles in use
_PHILOX = 8  # tiles that the words of a random number take
_APART, _FOLDED = 48, 128  # a tile with so many elements a thread is in use as a whole at a time


def product_registers(
    kernel: Kernel, analysis: Analysis, role: Roles, dots: Sequence[Dot], schedule: Schedule
) -> int:
    """The registers of a thread, without those for gathered elements, see `cutting.py`."""
    m, n, k = schedule.block_m, schedule.block_n, schedule.block_k
    held = elements_held(schedule)
    registers = held * _sums(dots[0], schedule) * len(dots) + ADDRESSES
    # Tiles that reach over the end need masks; else windows need their bounds. Hardware that copies
    # boxes needs neither.
    ends = points(role.m) % m or points(role.n) % n or points(role.k) % k
    guarded = any(isinstance(v, Guard) for d in dots for v in (d.a, d.b))
    if not schedule.box:
        registers += _MASKS if ends else _BOUNDS if guarded else 0
    if multiplies_in_threads(dots[0], schedule):
        registers += held + _FACTORS
    part = held // schedule.parts
    registers += _of(part, _alive(kernel, analysis, role), _FOLDED if kernel.columns else _APART)
    registers += part * _PHILOX * kernel.draws
    return registers if registers <= _MOST - _DOUBT else max(registers, _MOST + 1)


def elements_held(schedule: Schedule) -> int:
    """The number of a tile's elements that a thread holds."""
    return schedule.block_m * schedule.block_n // (schedule.num_warps * 32)


def multiplies_in_threads(dot: Dot, schedule: Schedule) -> bool:
    """Whether products of float32 run in threads, not on tensor cores."""
    return dot.input_dtype.itemsize == 4 and not (schedule.tf32 or schedule.digits)


def _sums(dot: Dot, schedule: Schedule) -> int:
    """The number of tiles of sums, see `triton/dots.py`."""
    short = dot.input_dtype in FLOAT8 and schedule.float8 and not dot.fast
    return 2 if short or dot.scales or schedule.digits else 1


def _alive(kernel: Kernel, analysis: Analysis, role: Roles) -> int:
    """The most tiles that are in use at a time behind a contraction, beyond its sums."""
    rows, columns = set(role.m), set(role.n)
    last = {id(o): place for place, v in enumerate(kernel.values) for o in v.operands()}
    last |= {id(s.value): len(kernel.values) for s in kernel.stores}
    kept = {id(o) for v in kernel.values if not isinstance(v, Reduce) for o in v.operands()}
    kept |= {id(s.value) for s in kernel.stores}  # elements for folds are made singly
    sums = [last[id(v)] for v in kernel.values if isinstance(v, Dot)]
    ends, most = sums, len(sums)
    for place, value in enumerate(kernel.values):
        axes = analysis.axes(value.arg if isinstance(value, Reduce) else value)
        if isinstance(value, Dot) or axes.isdisjoint(rows) or axes.isdisjoint(columns):
            continue
        ends = [e for e in ends if e > place]
        if isinstance(value, Reduce):
            within = _WITHIN if value.op.picks else 0
        else:
            ends += [last[id(value)]] if id(value) in kept else []
            within = _WITHIN if _is_hard(value, kernel) else 0
        most = max(most, len(ends) + within)
    return most - len(sums)


def _is_hard(value: Value, kernel: Kernel) -> bool:
    """Whether an op takes tiles of its own. The exponentials of a softmax between two folds are
    computed in place."""
    if not isinstance(value, Apply) or value.op.cost < _HARD:
        return False
    return not (kernel.columns and value.op is ops.exp)


def _of(elements: int, tiles: int, whole: int) -> int:
    """The registers of `tiles` tiles with so many elements a thread. The assembler has only parts
    of small tiles in use at a time. The parts are smaller where a fold lies between two values, and
    larger where divisions and roots branch, since it moves nothing across a branch."""
    return tiles * elements * min(elements, whole) // whole
