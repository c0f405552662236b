"""Forms of running sums, products, extrema and their places, by native code for any sizes."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tilewright.codegen.llvm import scans
from tilewright.ir.dtype import (
    HALVES,
    DType,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
)
from tilewright.ir.node import Node
from tilewright.ir.op import Op
from tilewright.ir.ops.scan import (
    cummax_index_op,
    cummax_op,
    cummin_index_op,
    cummin_op,
    cumprod_op,
    cumsum_op,
)

from . import copies, linking, maps
from .quiet import bare

Form = Callable[..., Any]

FOLDS: dict[Op, str] = {
    cumsum_op: "sum",
    cumprod_op: "product",
    cummax_op: "max",
    cummin_op: "min",
    cummax_index_op: "place of max",
    cummin_index_op: "place of min",
}
_PARTS = {complex64: float32, complex128: float64}
_WIDER = {
    **dict.fromkeys(HALVES, float32),
    **dict.fromkeys((int8, uint8, int16, uint16, int32, uint32), int64),
}
"""Dtypes that are folded as these, and rounded once more or cut."""

_KINDS = (
    *itertools.product((float32, float64, int64), scans.FOLDS),
    *itertools.product(_PARTS, ["product"]),
)


def has_form(node: Node) -> bool:
    """Whether a node has a form, which folds float32 in float64 by itself."""
    return node.op in FOLDS and form_of(node) is not None


def form_of(node: Node) -> Form | None:
    """The form of a scan; None if the reference computes it."""
    (x,), (axis,), fold = node.operands, node.attrs, FOLDS[node.op]
    own, inner = x.dtype, math.prod(x.shape[axis + 1 :])
    dtype = wide = _WIDER.get(own, own)
    if dtype in _PARTS and fold == "sum":  # of both parts
        dtype, inner = _PARTS[dtype], 2 * inner
    run, made = _native(dtype, fold), int64 if fold.startswith("place") else wide
    if run is None or 0 in x.shape:
        return None
    widen, narrow = maps.converter(own, wide), maps.converter(made, node.dtype)
    np_dtype = made.np
    numbers = (math.prod(x.shape[:axis]), x.shape[axis], inner)

    def scan(x: Any) -> Any:
        x = widen(copies.in_order(x))
        out = np.empty(x.shape, np_dtype)
        run((out, x), numbers)
        return narrow(out)

    return bare(scan) if own is wide and made is node.dtype else scan


def sums(x: Any, dtype: DType) -> Any:
    """The running sums along the last axis of an array that isn't empty; None if the reference
    computes them."""
    run = _native(dtype, "sum")
    if run is None:
        return None
    x, out = copies.in_order(x), np.empty(x.shape, dtype.np)
    run((out, x), (math.prod(x.shape[:-1]), x.shape[-1], 1))
    return out


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype, fold in _KINDS:
        yield _name(dtype, fold), scans.text(dtype, fold)


def _name(dtype: DType, fold: str) -> str:
    return f"running {fold} {dtype.name}"


@functools.cache
def _native(dtype: DType, fold: str) -> Callable[..., Any] | None:
    if (dtype, fold) not in _KINDS:
        return None
    code = linking.linked(_name(dtype, fold), lambda: scans.text(dtype, fold))
    return None if code is None else linking.function(code, scans.WORDS, 2)
