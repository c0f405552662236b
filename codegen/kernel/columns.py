"""Kernels that fold down columns: their folds, and the stores that wait for these.

The gradient of a layer norm folds its rows to get the gradient of its input, and the columns of the
same rows to get those of its weights. As one kernel it reads memory once. Such a kernel is chained
(see ir.py): the axes from row to row and those along a row are reduction axes, in this order, and
each fold is over either of them. Parallel axes number parts of the rows, whose columns are folded
each by itself (legalize/split.py). So the sums of a layer norm's gradients are

    parallel part; reduction row, column
    row level     mean = reduce sum x over column / columns
    column level  store W[part, column] = reduce sum (dy * (x - mean)) over row
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby

from ..target import Target
from .analysis import analyzed
from .domain import Domain
from .index import Axis
from .ir import ALONG, UPDATES, Dot, Kernel, Reduce, Store, Value, data_values

PARTS = frozenset(UPDATES.values())
"""The folds that can be made in parts, row by row."""
LEAST_ROWS = 64
"""The least rows: of fewer there are too few blocks to fold side by side."""
LEAST_OF_PART = 256
"""The least elements of a part of the rows, as many as a program that folds one has threads."""


@dataclass(frozen=True)
class Columns:
    """down: the axes from row to row. across: the axes along a row. folds: the folds over `down`,
    which don't need each other. early: the stores of rows, which need none of the folds. late: the
    stores of columns."""

    down: tuple[Axis, ...]
    across: tuple[Axis, ...]
    folds: tuple[Reduce, ...]
    early: tuple[Store, ...]
    late: tuple[Store, ...]


def columns(kernel: Kernel) -> Columns | None:
    """The parts of a kernel that folds columns; None if it doesn't, or if it needs their folds
    before its last row."""
    if kernel.is_update or not kernel.reduction:
        return None
    if any(isinstance(v, (Dot, *ALONG)) for v in kernel.values):
        return None
    first = kernel.reduction[0]
    reduces = [v for v in kernel.values if isinstance(v, Reduce)]
    down = next((v.over for v in reduces if first in v.over), ())
    beside = kernel.reduction if kernel.is_chained else kernel.parallel
    across = tuple(a for a in beside if a not in down)
    folds = tuple(v for v in reduces if v.over == down)
    rest = across if kernel.is_chained else down
    if not folds or any(v.op not in PARTS for v in folds):
        return None
    if any(v.folded() not in ((), down, rest) for v in kernel.values):
        return None
    after, analysis = _after(kernel, folds), analyzed(kernel)
    early: list[Store] = []
    late: list[Store] = []
    for store in kernel.stores:
        varies = (analysis.axes(store.value) | analysis.index_axes(store.offset)) & set(down)
        if varies and id(store.value) in after:
            return None
        (early if varies else late).append(store)
    if any(id(v.arg) in after for v in reduces):
        return None
    return Columns(down, across, folds, tuple(early), tuple(late))


def _after(kernel: Kernel, folds: Collection[Reduce]) -> set[int]:
    """The values that depend on one of `folds`, by id."""
    found = {id(v) for v in folds}
    for value in kernel.values:
        below: tuple[Value, ...] = (
            *value.operands(),
            *(d for i in value.indices() for d in data_values(i)),
        )
        if any(id(v) in found for v in below):
            found.add(id(value))
    return found


def crossing(rows: Domain, down: Domain, target: Target) -> Domain | None:
    """The domain of `rows` and of folds over `down`, if these fold the columns of the same rows,
    all rows at once or parts of them, and one kernel can hold so many columns."""
    parts, rest = divmod(down.points, rows.row)
    if (parts > 1) != bool(target.columns):  # one part would be one program of a GPU
        return None
    if rest or rows.points != parts * down.row or not rows.ends_with(rows.reduction):
        return None
    if rows.points < LEAST_ROWS or not down.row != rows.row <= target.column_limit:
        return None
    if parts > 1 and rows.row * down.row < LEAST_OF_PART:
        return None
    if parts == 1:
        walked = tuple(i for i in range(len(rows.shape)) if i not in rows.reduced)
        return Domain(rows.shape, rows.reduced, walked) if down.ends_with(down.parallel) else None
    walks = [a in down.reduction for a in down.axes if a.extent != 1]
    place = math.prod(a.extent for a in down.axes[: 1 + max(down.reduced)])
    if [w for w, _ in groupby(walks)] != [False, True, False] or place != rows.points:
        return None
    shape = parts, down.row, *(a.extent for a in rows.reduction)
    return Domain(shape, tuple(range(2, len(shape))), (1,))
