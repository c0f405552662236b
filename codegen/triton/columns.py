"""Folds of rows and of their columns in one kernel (kernel/columns.py).

A program walks through the rows of one part, a few at a time with all their columns. So it reads
them once: it folds the rows and makes their stores, and adds them to the sums of columns that each
thread keeps. Loads of the next rows are under way meanwhile (software pipelining).
"""

from __future__ import annotations

from ..kernel.columns import columns
from ..schedule import Schedule, points
from .folds import Rows, as_logic, folded
from .rows import ROWS, accumulate, fold_whole
from .scope import Body, Scope, Tile
from .text import Block
from .values import write

_COLUMNS = Rows(ROWS.along, ROWS.down)


def rows_and_columns(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    kernel = body.kernel
    found = columns(kernel)
    assert found is not None, "folds over some of the reduction axes are of rows and columns"
    across, down = points(found.across), points(found.down)
    block.add("r = tl.arange(0, BLOCK_R)[None, :]")
    ragged = across % schedule.block_r
    if ragged:
        block.add(f"r_ok = r < {body.sizes.extent('r', across)}")
    along = Tile("r", found.across, 1, "BLOCK_R", "r_ok" if ragged else None)
    root = Scope(body, block, [Tile("pid", kernel.parallel, None, "1", None), along])
    body.fold = fold_whole
    length = body.sizes.extent("p", down)
    loop = Block()
    loop.add("p = start + tl.arange(0, BLOCK_P)[:, None]")
    ragged = down % schedule.block
    if ragged:
        loop.add(f"p_ok = p < {length}")
    rows = Tile("p", found.down, 0, "BLOCK_P", "p_ok" if ragged else None)
    scope = Scope(body, loop, [rows], root)
    sums = [accumulate(root, scope, _COLUMNS, value, ()) for value in found.folds]
    write(scope, found.early)
    root.block.loop(f"for start in tl.range(0, {length}, BLOCK_P, num_stages=STAGES)", loop)
    for value, (total, _) in zip(found.folds, sums):
        text = folded(as_logic(value), total, axis=0)
        root.cache[id(value), ()] = root.assign(value.op.value, text, _COLUMNS.line)
    write(root, found.late)
    constexprs = {
        "BLOCK_P": schedule.block,
        "BLOCK_R": schedule.block_r,
        "STAGES": schedule.num_stages,
    }
    return constexprs, points(kernel.parallel)
