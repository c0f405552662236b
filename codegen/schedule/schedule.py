"""Schedule: how a kernel is cut into programs and loops, as a plain value."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..kernel.index import Axis

DOT_MIN = 16  # the least M, N and K that tensor cores take
BYTE_MIN = 32  # the least K of float8 and int8


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one kernel runs. A kernel uses only the block sizes that its form has.

    block: points that a program handles: elements, rows of a reduction, updates.
    turned: for maps whose loads run along other axes than their stores (`turned.py`): the points
        along the loads' axes that a program handles, each with `block` along the stores' axes; 0 if
        it handles elements in the order of the stores.
    block_r: positions of the reduction axes that it handles at a time.
    looped: whether it takes several steps along the reduction axes. Otherwise a row stays in
        registers from the first load to the last store.
    block_m, block_n, block_k: the tile of a contraction. In attention: block_m rows that a program
        owns, block_n of the other side that it takes at a time. In grouped updates: block_n columns
        of `block` updates, whose groups it walks along by block_r.
    box: for convolutions whose operands are boxes in memory (`kernel/box.py`): the lengths along
        each axis of the `block_m` rows of a tile, which hardware copies as such; () if its rows
        follow each other.
    group_m: the number of tiles along M that run close in time and so share columns in the L2
        cache.
    parts: the number of parts along N (1, 2, 4 or 8) into which a tile's sums are cut for the
        epilogue. This bounds its registers.
    descriptors: whether attention, and a product that sums segments or multiplies digits, reads its
        operands through tensor descriptors where it can, and a persistent product stores its
        results through them.
    persistent: the number of programs that walk through all tiles of a contraction and read
        matrices through tensor descriptors (TMA on NVIDIA's); 0 for one program for each tile.
    ahead: whether the forward pass of attention makes a step's weights during the products of the
        weights before them, with values.
    specialized: whether its copies have warps of their own, beside those that compute
        (`Chip.specialized`).
    tf32: whether products of float32 are rounded to TF32.
    digits: whether they are made of products of the factors' digits, which are in memory
        (`kernel/digits.py`).
    float8: whether tensor cores multiply float8 as it is; otherwise it becomes float16.
    registers: the most that a thread may have, so that more programs fit a multiprocessor; 0 if
        the compiler decides.
    num_warps, num_stages: Triton's.
    """

    block: int = 1024
    turned: int = 0
    block_r: int = 1
    looped: bool = False
    block_m: int = 64
    block_n: int = 64
    block_k: int = 32
    box: tuple[int, ...] = ()
    group_m: int = 8
    parts: int = 1
    descriptors: bool = False
    persistent: int = 0
    ahead: bool = False
    specialized: bool = False
    tf32: bool = False
    digits: bool = False
    float8: bool = False
    registers: int = 0
    num_warps: int = 4
    num_stages: int = 3

    @property
    def warps(self) -> int:
        """The warps of a program, with those that only copy."""
        return self.num_warps + 4 * self.specialized


def points(axes: Iterable[Axis]) -> int:
    """The number of points of all axes together."""
    return math.prod(a.extent for a in axes)


def power_of_two(value: int) -> int:
    """The least power of two that is at least `value`."""
    return 1 << max(value - 1, 0).bit_length()


def head_block(axis: Axis) -> int:
    """The length of a tile that holds all elements of a head."""
    return fit(axis.extent, axis.extent)


def fit(extent: int, most: int) -> int:
    """The block of a tensor core's product that is as long as `extent`, or has `most`."""
    return max(DOT_MIN, min(power_of_two(extent), power_of_two(most)))


def floor_power(value: int) -> int:
    """The largest power of two that is at most `value`."""
    return 1 << (value.bit_length() - 1)
