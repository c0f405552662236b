"""Kernels that fold down columns: their folds, and the stores that wait for these.

The gradient of a layer norm folds its rows to get the gradient of its input, and the columns of the
same rows to get those of its weights. As one kernel it reads memory once. Such a kernel is chained
(see ir.py): all its axes are reduction axes, those from row to row in front, and each fold is
over either part.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..target import Target
from .analysis import Analysis
from .domain import Domain
from .index import Axis
from .ir import ALONG, UPDATES, Dot, Kernel, Reduce, Store, Value, data_values

PARTS = frozenset(UPDATES.values())
"""The folds that can be made in parts, row by row."""
LEAST_ROWS = 64
"""The least rows: of fewer there are too few blocks to fold side by side."""


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
    across = tuple(a for a in (*kernel.parallel, *kernel.reduction) if a not in down)
    folds = tuple(v for v in reduces if v.over == down)
    rest = across if kernel.is_chained else down
    if not folds or any(v.op not in PARTS for v in folds):
        return None
    if any(v.folded() not in ((), down, rest) for v in kernel.values):
        return None
    after, analysis = _after(kernel, folds), Analysis(kernel)
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


def crosses(rows: Domain, down: Domain, target: Target) -> bool:
    """Whether folds over `down` fold the columns of `rows`, and one kernel can hold so many
    columns."""
    sizes = (rows.points, rows.row) == (down.row, down.points)
    fits = LEAST_ROWS <= rows.points != rows.row <= target.column_limit
    return sizes and fits and rows.ends_with(rows.reduction) and down.ends_with(down.parallel)
