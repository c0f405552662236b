"""Merging: a row is two sorted runs, and a program finds one piece of the merged row.

Bisection finds where a piece begins in each run (merge path: Odeh, Green, Mwassi, Shmueli, Birk,
"Merge Path - Parallel Merging Made Simple", 2012). The elements of one run forwards, followed by
those of the other run backwards, are bitonic, so a network brings them in order.
"""

from __future__ import annotations

import numpy as np

from ..kernel import Load, Ordered, Value
from ..kernel.index import Axis, Index
from ..schedule import Schedule, points
from .scope import Body, Guards, Ref, Scope, Tile, pointer
from .text import Block
from .values import unsupported, write


def merge(body: Body, block: Block, schedule: Schedule) -> tuple[dict[str, int], int]:
    """Writes the kernel; returns its constexprs and the number of programs."""
    kernel = body.kernel
    (along,) = kernel.reduction
    length = body.sizes.extent("r", along.extent)
    pieces = -(-along.extent // schedule.block_r)
    block.add(f"pieces = ({length} + BLOCK_R - 1) // BLOCK_R")
    block.add("p = pid // pieces")
    block.add("start = pid % pieces * BLOCK_R")
    block.add("r = start + tl.arange(0, BLOCK_R)")
    block.add(f"r_ok = r < {length}")
    rows = tuple(a for a in kernel.parallel if a.extent != 1)
    scope = Scope(
        body, block, [Tile("p", rows, None, "1", None), Tile("r", (along,), 0, "BLOCK_R", "r_ok")]
    )
    body.fold = _merged
    write(scope, kernel.stores)
    return {"BLOCK_R": schedule.block_r}, points(kernel.parallel) * pieces


def _merged(scope: Scope, value: Value, guards: Guards) -> Ref:
    if not isinstance(value, Ordered):
        raise unsupported(scope, value)
    row = _row(scope, value.arg, value.along)
    run = scope.body.sizes.argument(value.run)
    most = np.iinfo(value.dtype.np).max
    text = f"tw_merged({row}, {run}, start, {most}, BLOCK_R)"
    return scope.assign("word", text, frozenset({"r"}))


def _row(scope: Scope, value: Value, along: Axis) -> str:
    """The place in memory where a row begins."""
    if isinstance(value, Load) and value.offset.is_affine and value.offset.coefficient(along) == 1:
        rest = tuple((a, c) for a, c in value.offset.terms if a is not along)
        first = scope.index(Index(rest, value.offset.const))
        return pointer(scope.body.buffers[value.buffer], first.text)
    raise NotImplementedError(f"{scope.body.kernel.name}: merges runs that are not in memory")
