"""Schedule: how a kernel is cut for a CPU, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one kernel runs. What is None follows from sizes; a kernel looks at what its form has.

    native: whether it is native code, or else a NumPy program, whose products are a BLAS library's.
    tile: (rows, vectors) of a product's sums that are held in registers.
    rows, columns: of the result of a product, the most that a chunk computes; of a tile of
        attention's scores, keys and queries.
    depth: the most places along K that a block of a product sums at a time.
    turned: whether a product is computed along the other side of its result.
    along: which axis lanes run along, counted from the first parallel axis.
    vectors: how many registers lanes fill.
    work: of a chunk without products, in quarters of a nanosecond.
    """

    native: bool | None = None
    tile: tuple[int, int] | None = None
    rows: int | None = None
    columns: int | None = None
    depth: int | None = None
    turned: bool | None = None
    along: int | None = None
    vectors: int | None = None
    work: int | None = None


DEFAULT = Schedule()
"""All by size alone."""
