"""Schedules of attention: tiles by the width of a head.

Found by compiling: the largest tiles whose scores, operands and sums stay in registers, also with a
causal mask, and as many stages as copies need to be under way during products, where shared memory
holds them. `bench/schedules.py` measures others on a card; on an H100 those of sm_90 were the best.

Where a table says where keys lie, it is read two steps ahead of them, which takes as many stages
(`cutting.LOOKUP`).

Rows are (width, (own, walked, warps, stages) of each of the three passes). Reading through
descriptors is left to the tuner.
"""

from __future__ import annotations

from ..kernel import Kernel, Load
from ..kernel.attention import Roles, roles
from ..kernel.index import Axis
from ..kernel.matrix import head
from ..target import Target
from .cutting import LOOKUP
from .schedule import Schedule, fit, head_block

Tiles = tuple[int, int, int, int]
Passes = tuple[Tiles, Tiles, Tiles]

# Forward, gradient of queries, gradient of keys and values.
_HALF: dict[str, tuple[tuple[int, Passes], ...]] = {
    "sm_80": (
        (64, ((128, 64, 8, 3), (64, 64, 4, 3), (64, 32, 4, 3))),
        (128, ((128, 64, 8, 3), (64, 64, 4, 2), (64, 32, 4, 3))),
        (256, ((64, 32, 8, 3), (64, 32, 8, 3), (64, 16, 8, 3))),
    ),
    "sm_90": (
        (64, ((64, 64, 4, 3), (128, 64, 8, 3), (128, 64, 8, 3))),
        (128, ((128, 128, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3))),
        (256, ((128, 64, 8, 2), (128, 32, 8, 3), (64, 32, 8, 3))),
    ),
    "sm_100": (
        (64, ((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 2))),
        (128, ((128, 64, 8, 3), (128, 64, 8, 3), (128, 32, 8, 2))),
        (256, ((128, 64, 8, 2), (128, 32, 8, 2), (64, 32, 8, 2))),
    ),
    "gfx942": (
        (64, ((128, 64, 4, 1), (128, 32, 4, 1), (64, 32, 4, 1))),
        (128, ((128, 32, 4, 1), (64, 32, 4, 1), (64, 32, 4, 1))),
        (256, ((64, 32, 4, 1), (32, 32, 4, 1), (32, 32, 4, 1))),
    ),
}
_HALF["gfx950"] = _HALF["gfx942"]
_FULL: tuple[tuple[int, Passes], ...] = (
    (64, ((64, 32, 8, 2), (64, 32, 8, 2), (64, 32, 8, 2))),
    (128, ((32, 16, 4, 2), (32, 16, 4, 2), (32, 16, 4, 2))),
    (256, ((16, 16, 4, 1), (16, 16, 4, 1), (16, 16, 4, 1))),
)
"""Float32, without tensor cores."""
_DRAWING: dict[tuple[str, int], Passes] = {
    ("sm_80", 64): ((128, 32, 8, 3), (64, 32, 4, 3), (64, 16, 4, 3)),
    ("sm_80", 128): ((128, 32, 8, 3), (64, 32, 4, 2), (64, 16, 4, 3)),
    ("sm_90", 256): ((128, 64, 8, 2), (64, 16, 8, 3), (64, 16, 8, 2)),
}
_CHANGED: dict[tuple[str, int], Passes] = {
    ("sm_90", 256): ((128, 64, 8, 2), (128, 32, 8, 3), (64, 16, 8, 3)),
}
_SPANS: dict[tuple[str, int], Passes] = {
    ("sm_90", 128): ((128, 64, 8, 3), (128, 64, 8, 3), (128, 64, 8, 3)),
}
"""Half types, by chip and width. A head of this width leaves too few registers for larger scores
beside the words of random numbers, a causal mask or a cap, or a range of keys for each query."""


def attention_schedule(kernel: Kernel, target: Target) -> Schedule:
    parts = roles(kernel)
    if parts is None or parts.walked is None:
        raise NotImplementedError(f"{kernel.name}: a chain of folds that is not attention")
    own = parts.key if parts.walked is parts.query else parts.query
    if target.large_programs:
        return Schedule(block_m=fit(own.extent, 256), block_n=fit(parts.walked.extent, 256))
    rows, walked, warps, stages = _tiles(kernel, parts, target)
    return Schedule(
        block_m=fit(own.extent, rows),
        block_n=fit(parts.walked.extent, walked),
        tf32=target.tf32,
        num_warps=warps,
        num_stages=stages,
    )


def runs_ahead(kernel: Kernel, target: Target) -> bool:
    """Whether weights may be made during the products of those before: in the forward pass, where
    products go on beside other work, and where some block of keys is there for each query."""
    parts = roles(kernel)
    if not target.chip.asynchronous or parts is None or parts.total is None:
        return False
    return parts.span is None and any(dot is not None for _, dot in parts.stores)


def specializes(kernel: Kernel, target: Target) -> bool:
    """Whether the copies and the products of attention may have warps of their own: hardware copies
    all operands, and beside them there are only numbers for rows."""
    parts = roles(kernel)
    if not target.chip.specialized or parts is None or parts.walked is None or kernel.draws:
        return False
    if parts.span is not None or parts.products.input_dtype.itemsize != 2:
        return False
    loads = [v for v in kernel.values if isinstance(v, Load)]
    sides = parts.query, parts.key
    return all(_is_copied(v, parts) or any(_is_of_rows(v, parts, s) for s in sides) for v in loads)


def tensor_columns(parts: Roles, schedule: Schedule) -> int:
    """The columns of tensor memory that a gradient takes if its copies have warps of their own:
    those of two steps' scores and their gradients, and of its sums."""
    sums = sum(map(head_block, parts.widths))
    return (4 * schedule.block_n + sums) * schedule.block_m // 128


def _is_copied(load: Load, parts: Roles) -> bool:
    """Whether this is an operand whose tiles hardware copies."""
    return load.buffer.dtype is parts.products.input_dtype and any(
        head_block(width) == width.extent and head(load, side, width) is not None
        for side in (parts.query, parts.key)
        for width in (parts.inner, parts.outer)
    )


def _is_of_rows(load: Load, parts: Roles, rows: Axis) -> bool:
    """Whether this is a number for each row of one side, or for all."""
    outside = {parts.query, parts.key, parts.inner, parts.outer} - {rows}
    return load.offset.is_affine and outside.isdisjoint(load.offset.axes())


def _tiles(kernel: Kernel, parts: Roles, target: Target) -> Tiles:
    width = max(head_block(parts.inner), head_block(parts.outer))
    half = parts.products.input_dtype.itemsize == 2
    table = _HALF[target.chip.name] if half else _FULL
    most, passes = next(row for row in table if width <= row[0])
    if half:
        passes = _crowded(kernel, parts).get((target.chip.name, most), passes)
    which = 0 if parts.total is not None else 2 if parts.walked is parts.query else 1
    own, walked, warps, stages = passes[which]
    if kernel.draws and walked > ((64, walked, 32)[which] if half else 16):
        walked //= 2  # Philox's words take registers beside the scores
    return own, walked, warps, stages + LOOKUP * (parts.looks_up and stages > 1)


def _crowded(kernel: Kernel, parts: Roles) -> dict[tuple[str, int], Passes]:
    """The tiles of what takes registers beside the scores."""
    if kernel.draws:
        return _DRAWING
    if parts.causal is not None or parts.capped is not parts.products:
        return _CHANGED
    return _SPANS if parts.span is not None else {}
