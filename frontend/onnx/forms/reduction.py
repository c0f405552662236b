"""Reductions. The reduced axes stay, with size 1."""

from __future__ import annotations

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, FLOAT, int32, int64, uint8
from tilewright.ir.op import REGISTRY

from ..align import Traced
from ..exporter import Exporter, form
from .movement import reshape_to

_sum, _prod = REGISTRY["sum"], REGISTRY["prod"]
_max, _min = REGISTRY["max"], REGISTRY["min"]
_any, _all = REGISTRY["any"], REGISTRY["all"]


@form(_sum, _prod)
def _fold(e: Exporter, t: Traced, x: str) -> str:
    narrow = t.dtype.category == BOOL or (t.dtype.category != FLOAT and t.dtype.itemsize < 4)
    wide = e.cast(x, int32) if narrow else x
    out = e.add(str(t.op.onnx), wide, e.ints(t.attrs[0]), keepdims=1)
    return e.cast(out, t.dtype) if narrow else out


@form(_max, _min)
def _extremum(e: Exporter, t: Traced, x: str) -> str:
    # The only narrow types of ReduceMax are int8 and uint8.
    narrow = t.dtype.category == BOOL or t.dtype.name == "int16"
    wide = e.cast(x, int32 if t.dtype.name == "int16" else uint8) if narrow else x
    out = e.add(str(t.op.onnx), wide, e.ints(t.attrs[0]), keepdims=1)
    return e.cast(out, t.dtype) if narrow else out


@form(_any, _all)
def _truth(e: Exporter, t: Traced, x: str) -> str:
    op_type = "ReduceMax" if t.op is _any else "ReduceMin"
    if not t.attrs[0]:
        return x
    return e.cast(e.add(op_type, e.cast(x, uint8), e.ints(t.attrs[0]), keepdims=1), t.dtype)


@form(ops.logsumexp)
def _logsumexp(e: Exporter, t: Traced, x: str) -> str | None:
    return e.add("ReduceLogSumExp", x, e.ints(t.attrs[0]), keepdims=1) if t.attrs[0] else None


@form(ops.argmax, ops.argmin)
def _arg(e: Exporter, t: Traced, x: str) -> str:
    axes = t.attrs[0]
    source = t.operands[0]
    if source.dtype.category == BOOL:
        x = e.cast(x, uint8)
    if not axes:
        return e.add("Expand", e.number(0, int64), e.add("Shape", x))
    if len(axes) == 1:
        return e.add(str(t.op.onnx), x, axis=axes[0], keepdims=1, select_last_index=0)
    kept = [i for i in range(source.rank) if i not in axes]
    moved = e.add("Transpose", x, perm=[*kept, *axes])
    rows = e.ints([source.shape[i] for i in kept]) if kept else None
    shape = e.ints([-1]) if rows is None else e.add("Concat", rows, e.ints([-1]), axis=0)
    flat = e.add("Reshape", moved, shape)
    place = e.add(str(t.op.onnx), flat, axis=len(kept), keepdims=1, select_last_index=0)
    return reshape_to(e, place, t.shape)
