"""Results whose size is data."""

from __future__ import annotations

from tilewright.ir.dtype import FLOAT, float32, int64

from ...functions.data_sized import distinct_of, positions_of
from ..align import Traced
from ..exporter import Exporter, whole


@whole(positions_of)
def _nonzero(e: Exporter, t: Traced, x: str) -> str:
    return e.add("Transpose", e.add("NonZero", x), perm=[1, 0])


@whole(distinct_of)
def _unique(e: Exporter, t: Traced, x: str) -> str:
    source = t.operands[0].dtype
    # onnxruntime has Unique for float32, float64, int8 and int64.
    narrow = source.category != FLOAT or source.itemsize < 4
    if narrow:
        x = e.cast(x, float32 if source.category == FLOAT else int64)
    values, _, inverse, counts = e.add_many("Unique", 4, x, sorted=1)
    result = t.attrs[2]
    if result == 0:
        return e.cast(values, t.dtype) if narrow else values
    if result == 2:
        return counts
    return e.add("Reshape", inverse, e.ints(t.shape))
