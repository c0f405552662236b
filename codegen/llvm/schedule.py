"""Schedule: the cut of a kernel for a CPU, as a plain value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Schedule:
    """How one kernel runs. None: the choice follows from sizes. A kernel uses the fields of its
    form.

    native: whether it is native code, or else a NumPy program with products of a BLAS library.
    tile: (rows, vectors) of a product's sums that are held in registers.
    rows, columns: the most of a product's result that a chunk computes. In attention: the keys and
        queries of a tile of scores.
    depth: the most places along K that a block of a product sums at a time.
    turned: whether a product is computed along the other side of its result.
    along: the axis of the lanes, counted from the first parallel axis.
    vectors: the number of registers that the lanes fill.
    work: the work of a chunk without products, in quarters of a nanosecond.
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
"""All choices follow from sizes."""
