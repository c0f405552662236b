"""Cumulative sums and sorting."""

from __future__ import annotations

from tilewright.ir.dtype import BOOL, FLOAT, int32, int64
from tilewright.ir.op import REGISTRY

from ..align import Traced
from ..exporter import Exporter, form


@form(REGISTRY["cumsum"])
def cumsum(e: Exporter, t: Traced, x: str) -> str:
    narrow = t.dtype.category != FLOAT and t.dtype.itemsize < 4
    wide = e.cast(x, int32) if narrow else x
    out = e.add("CumSum", wide, e.number(t.attrs[0], int64))
    return e.cast(out, t.dtype) if narrow else out


@form(REGISTRY["argsort"])
def argsort(e: Exporter, t: Traced, x: str) -> str:
    """TopK of all elements. Equal elements keep their order, as in a stable sort."""
    axis, descending = t.attrs
    dtype = t.operands[0].dtype
    if dtype.category == BOOL or (dtype.category != FLOAT and dtype.itemsize < 4):
        x = e.cast(x, int32)
    count = e.extent(t.shape[axis])
    return e.add_many("TopK", 2, x, count, axis=axis, largest=int(descending), sorted=1)[1]
