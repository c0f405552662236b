"""The role of each axis of a contraction."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .analysis import Analysis
from .index import Axis
from .ir import Dot, Kernel


@dataclass(frozen=True, slots=True)
class Roles:
    """batch: the parallel axes that both operands mention, or neither. m: those that only `a`
    mentions. n: those that only `b` mentions. k: the axes that are summed over. Axes of extent 1
    have no role. Where rows are folded, n is the kernel's columns, and other axes of `b` alone are
    batch.

    group: the axis of the groups, in a product in segments. If it isn't in the batch, the segments
    are along m, and it isn't in k either: a row is summed over its own group alone.
    """

    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    group: Axis | None = None

    @property
    def has_segments_of_rows(self) -> bool:
        return self.group is not None and self.group not in self.batch

    def row_tiles(self, block: int) -> int:
        """The number of tiles of `block` rows; where rows are in segments, the most there may be,
        see `triton/segments.py`."""
        rows = math.prod(a.extent for a in self.m)
        if not self.has_segments_of_rows:
            return -(-rows // block)
        assert self.group is not None
        return rows // block + self.group.extent + 1


def roles(kernel: Kernel, analysis: Analysis, dot: Dot) -> Roles:
    in_a, in_b = analysis.axes(dot.a), analysis.axes(dot.b)
    parallel = tuple(a for a in kernel.parallel if a.extent != 1)
    group = None
    if dot.segment is not None:
        (group,) = analysis.axes(dot.segment.first)
        in_a |= {dot.segment.along}  # also where all rows of it are alike
    columns = kernel.columns or tuple(a for a in parallel if a in in_b and a not in in_a)
    rows = tuple(a for a in parallel if a in in_a and a not in in_b)
    return Roles(
        batch=tuple(a for a in parallel if a not in rows and a not in columns),
        m=rows,
        n=columns,
        k=tuple(a for a in dot.over if a.extent != 1 and a is not group),
        group=group,
    )
