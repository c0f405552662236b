"""Which part each axis of a contraction plays."""

from __future__ import annotations

import math
from dataclasses import dataclass

from .analysis import Analysis
from .index import Axis
from .ir import Dot, Kernel


@dataclass(frozen=True, slots=True)
class Roles:
    """The parallel axes that both or neither of the operands mention (batch), that only `a` (m) or
    only `b` (n) mentions, and the axes that are summed over (k). Axes of extent 1 play none. Where
    rows are folded n is the kernel's columns, and what else `b` alone mentions is batch.

    group: in a product in segments, the axis of their groups. If it is none of the batch the
    segments are along m, and it is none of k either: a row is summed over its own group alone.
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
        """How many tiles of so many rows there are; the most there may be where segments are of
        rows, see `triton/segments.py`."""
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
