"""Cumulative folds and sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.dtype import BOOL, FLOAT, DType, float32, float64, int32, int64
from tilewright.ir.op import REGISTRY, Fold
from tilewright.ir.ops.pooling import lowest

from ..align import Traced
from ..exporter import Exporter, form


@form(REGISTRY["cumsum"])
def cumsum(e: Exporter, t: Traced, x: str) -> str:
    narrow = t.dtype.category != FLOAT and t.dtype.itemsize < 4
    wide = e.cast(x, int32) if narrow else x
    out = e.add("CumSum", wide, e.number(t.attrs[0], int64))
    return e.cast(out, t.dtype) if narrow else out


_OPERATOR = {Fold.PROD: "Mul", Fold.MAX: "Max", Fold.MIN: "Min"}


def _first(fold: Fold, dtype: DType) -> Any:
    """What a fold begins with."""
    if fold is Fold.PROD:
        return 1
    if fold is Fold.MIN:
        return math.inf if dtype.category == FLOAT else np.iinfo(dtype.np).max
    return lowest(dtype)


@form(*(REGISTRY[name] for name in ("cumprod", "cummax", "cummin", "logcumsumexp")))
def fold(e: Exporter, t: Traced, x: str) -> str:
    """A fold of all elements before each, by Scan."""
    axis = t.attrs[0]
    fold = t.op.fold
    assert fold is not None
    wide = t.dtype
    if wide.category != FLOAT:
        wide = int64
    elif t.op.wide or wide.itemsize < 4:
        wide = float64 if t.op.wide else float32
    x = x if wide is t.dtype else e.cast(x, wide)
    # A reduction of no elements gives what the fold begins with, in the shape of one slice.
    empty = e.add("Slice", x, e.ints([0]), e.ints([0]), e.ints([axis]))
    slice_ = e.add("ReduceSum", empty, e.ints([axis]), keepdims=0)
    start = e.add("Add", slice_, e.number(_first(fold, wide), wide))
    made = e.add_many(
        "Scan",
        2,
        start,
        x,
        body=_body(e, fold, wide, t.rank - 1),
        num_scan_inputs=1,
        scan_input_axes=[axis],
        scan_output_axes=[axis],
    )[1]
    return made if wide is t.dtype else e.cast(made, t.dtype)


def _body(e: Exporter, fold: Fold, dtype: DType, rank: int) -> Any:
    """One step: the fold of what came before with one slice."""
    node = e.onnx.helper.make_node
    names = iter(e.fresh(f"step_{n}") for n in ("before", "each", "after", "kept"))
    before, each, after, kept = names
    if fold in _OPERATOR:
        nodes = [node(_OPERATOR[fold], [before, each], [after])]
    else:
        nodes = _logaddexp(e, before, each, after, dtype)
    nodes.append(node("Identity", [after], [kept]))
    sizes: list[Any] = [None] * rank

    def described(name: str) -> Any:
        return e.onnx.helper.make_tensor_value_info(name, e.element_type(dtype), sizes)

    return e.onnx.helper.make_graph(
        nodes, "step", [described(before), described(each)], [described(after), described(kept)]
    )


def _logaddexp(e: Exporter, a: str, b: str, out: str, dtype: DType) -> list[Any]:
    """log(exp(a) + exp(b)); equal infinities have no difference."""
    node = e.onnx.helper.make_node
    one, zero = e.number(1, dtype), e.number(0, dtype)
    stems = ("largest", "apart", "size", "less", "equal", "near", "part", "sum", "rest")
    m, d, s, n, q, w, x, p, r = (e.fresh(f"step_{stem}") for stem in stems)
    return [
        node("Max", [a, b], [m]),
        node("Sub", [a, b], [d]),
        node("Abs", [d], [s]),
        node("Neg", [s], [n]),
        node("Equal", [a, b], [q]),
        node("Where", [q, zero, n], [w]),
        node("Exp", [w], [x]),
        node("Add", [x, one], [p]),
        node("Log", [p], [r]),
        node("Add", [m, r], [out]),
    ]


@form(REGISTRY["det"])
def det(e: Exporter, t: Traced, x: str) -> str:
    return e.add("Det", x)


@form(REGISTRY["argsort"])
def argsort(e: Exporter, t: Traced, x: str) -> str:
    """TopK of all elements. Equal elements keep their order, as in a stable sort."""
    axis, descending = t.attrs
    dtype = t.operands[0].dtype
    if dtype.category == BOOL or (dtype.category != FLOAT and dtype.itemsize < 4):
        x = e.cast(x, int32)
    count = e.extent(t.shape[axis])
    return e.add_many("TopK", 2, x, count, axis=axis, largest=int(descending), sorted=1)[1]
