"""The predicted time of a product on a CPU, by its blocks: a static model to rank schedules.

A step of the inner loop takes as long as the busier of two units: multiply-adds (two a cycle) and
loads (two a cycle). On top come reads of blocks from the second level of cache, packing of
operands, additions to the sums of earlier blocks, and the hand-out of chunks to threads. Only the
order of schedules counts, not the seconds.
"""

from __future__ import annotations

import math

from .dot.micro import Tile
from .machine import Machine

CYCLE = 1 / 3e9
LATENCY = 4
"""Cycles until a sum is ready for the next addition."""
LINE, BUS = 64, 32
"""Bytes of a cache line, and bytes a cycle from the second level."""
PACK = 1.0
"""Cycles to pack an element that is read from memory."""
FIRST = 32 << 10
"""Bytes of the first level of cache."""
SECOND = 512 << 10
"""Bytes of the second level that a chunk may count on."""
START = 1500
"""Cycles to begin a chunk."""


def product_seconds(
    sizes: tuple[int, int, int],
    items: int,
    tile: Tile,
    block: tuple[int, ...],
    machine: Machine,
    threads: int,
) -> float:
    """sizes: (m, n, k) of a product. items: the number of products. block: the rows, columns and
    depth of a chunk's blocks."""
    m, n, k = sizes
    rows, columns, depth = (max(min(b, s), 1) for b, s in zip(block, sizes))
    row_tiles, column_tiles = -(-rows // tile.rows), -(-columns // tile.columns)
    pieces = -(-k // depth)
    sums, loads = tile.rows * tile.vectors, tile.rows + tile.vectors
    registers = 16 if machine.vector_bytes == 32 else 32
    step = max(sums / 2, loads / 2, LATENCY)
    if sums + tile.vectors + 1 > registers:
        step *= 1.5  # spilled
    # All rows of a block meet a panel of `b`: in the first level, if it fits there.
    panel = tile.columns * depth * tile.itemsize
    left = tile.rows * depth * tile.itemsize
    reread = panel if panel + left > FIRST // 4 * 3 else 0.0
    in_tile = depth * step + (left + reread) / BUS + 2 * sums * LINE / BUS
    held = rows * depth * tile.itemsize + rows * columns * tile.itemsize
    pressure = math.sqrt(max(1.0, held / SECOND))
    chunk = row_tiles * column_tiles * pieces * in_tile * pressure + START
    chunk += PACK * rows * k
    chunks = items * -(-m // rows) * -(-n // columns)
    rounds = math.ceil(chunks / threads)
    return CYCLE * (chunk * rounds + PACK * n * k * items / threads)
