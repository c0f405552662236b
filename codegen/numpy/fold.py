"""Folds over the reduction axes: reductions, running folds, sorting."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tilewright.ir.op import Fold

from ..kernel import Ordered, Reduce, Scan, Sort
from ..kernel.index import Axis
from .domain import Domain
from .emission import Context, Emission, np_name
from .layout import strides_of
from .program import Array

# Measured on Zen 4: the most elements in a row, and the least rows.
_SHORT, _LEAST_RESULTS = 16, 1 << 11
_TALL = 256

_UFUNC = {
    Fold.SUM: "np.add",
    Fold.PROD: "np.multiply",
    Fold.MAX: "np.maximum",
    Fold.MIN: "np.minimum",
    Fold.ANY: "np.logical_or",
    Fold.ALL: "np.logical_and",
    Fold.LOGSUMEXP: "np.logaddexp",
}


def dimensions(axes: tuple[Axis, ...], domain: Domain) -> tuple[int, ...]:
    """The dimensions of a kernel's axes; an axis of one point has none."""
    return tuple(sorted({domain.origin[a] for a in axes if a in domain.origin}))


def spread(e: Emission, array: Array, dims: tuple[int, ...], domain: Domain) -> Array:
    """`array` with the full size of the domain along `dims`."""
    extent = list(array.extent or (1,) * domain.rank)
    for d in dims:
        extent[d] = domain.shape[d]
    return e.broadcast(array, tuple(extent))


def reduce(e: Emission, value: Reduce, context: Context) -> Array:
    domain = context.domain
    dims = dimensions(value.over, domain)
    arg = spread(e, e.of(value.arg, context), dims, domain)
    wanted = value.dtype.np
    extent = tuple(1 if d in dims else n for d, n in enumerate(arg.extent))
    stem = f"{value.op.value}_"
    if value.op.picks:
        kept = min(dims, default=domain.rank)
        call = f"support.arg_extreme(np.{value.op.value}, {arg.name}, {kept})"
        out = e.let(call, np.int64, extent, (arg,), stem=stem, by_rows=0 not in dims)
        return e.cast(out, wanted)
    if not dims:
        return e.cast(arg, wanted)
    if value.op is Fold.LOGSUMEXP:
        e.program.may_warn = True
        call = f"support.logsumexp({arg.name}, {dims})"
        return e.let(call, wanted, extent, (arg,), stem=stem, by_rows=0 not in dims)
    options = f"axis=({', '.join(map(str, dims))},), keepdims=True"
    dtype = arg.dtype
    if value.op in (Fold.SUM, Fold.PROD):
        e.program.may_warn |= wanted.kind == "f"
        options += f", dtype={np_name(wanted)}"
        dtype = wanted
    elif value.op in (Fold.MAX, Fold.MIN) and 0 in [arg.extent[d] for d in dims]:
        lowest = identity(value.op, arg.dtype)
        options += f", initial={e.argument('c', lowest, (value.op.value, arg.dtype.name))}"
    call = f"{_UFUNC[value.op]}.reduce({arg.name}, {options})"
    if _is_short(arg, dims) and arg.dtype == dtype:
        call = f"support.fold({_UFUNC[value.op]}, {arg.name}, {dims})"
    elif value.op is Fold.SUM and wanted.kind == "f" and _is_tall(arg, dims):
        call = f"support.sum_rows({arg.name}, {dims[0]}, {np_name(wanted)})"
    out = e.let(call, dtype, extent, (arg,), stem=stem, by_rows=0 not in dims)
    return e.cast(out, wanted)


def _is_short(arg: Array, dims: tuple[int, ...]) -> bool:
    """Whether NumPy's inner loop would have only a few elements at a time. Then it is faster to
    take each element of the fold in a pass over the result."""
    count = math.prod(arg.extent[d] for d in dims)
    results = math.prod(arg.extent) // max(count, 1)
    if count == 0 or results < _LEAST_RESULTS:
        return False
    strides = strides_of(arg)
    within = min((d for d, n in enumerate(arg.extent) if n != 1), key=lambda d: abs(strides[d]))
    return within in dims and arg.extent[within] <= _SHORT and count <= 4 * _SHORT


def _is_tall(arg: Array, dims: tuple[int, ...]) -> bool:
    """Whether many rows are added one after another, which loses digits."""
    if len(dims) != 1 or arg.extent[dims[0]] < _TALL:
        return False
    strides = strides_of(arg)
    return any(n != 1 and abs(strides[d]) < abs(strides[dims[0]]) for d, n in enumerate(arg.extent))


def identity(op: Fold, dtype: np.dtype) -> Any:
    """The max or min of nothing."""
    if dtype.kind == "b":
        return np.bool_(op is Fold.MIN)
    if dtype.kind == "f":
        return dtype.type(-np.inf if op is Fold.MAX else np.inf)
    limits = np.iinfo(dtype)
    return dtype.type(limits.min if op is Fold.MAX else limits.max)


def scan(e: Emission, value: Scan, context: Context) -> Array:
    dims = dimensions((value.along,), context.domain)
    arg = spread(e, e.of(value.arg, context), dims, context.domain)
    if not dims:
        return e.cast(arg, value.dtype.np)
    e.program.may_warn |= value.dtype.np.kind == "f"
    kind = np_name(value.dtype.np)
    call = f"{_UFUNC[value.op]}.accumulate({arg.name}, axis={dims[0]}, dtype={kind})"
    return e.let(call, value.dtype.np, arg.extent, (arg,), stem="scan_", by_rows=dims != (0,))


def sort(e: Emission, value: Sort, context: Context) -> Array:
    dims = dimensions((value.along,), context.domain)
    arg = spread(e, e.of(value.arg, context), dims, context.domain)
    if not dims:
        call = f"np.zeros({arg.extent}, {np_name(value.dtype.np)})"
        return e.let(call, value.dtype.np, arg.extent)
    call = f"support.sort_positions({arg.name}, {dims[0]}, {bool(value.descending)})"
    out = e.let(call, np.int64, arg.extent, (arg,), stem="sort_", by_rows=dims != (0,))
    return e.cast(out, value.dtype.np)


def ordered(e: Emission, value: Ordered, context: Context) -> Array:
    dims = dimensions((value.along,), context.domain)
    arg = spread(e, e.of(value.arg, context), dims, context.domain)
    if not dims:
        return arg
    call = f"np.sort({arg.name}, axis={dims[0]})"
    return e.let(call, value.dtype.np, arg.extent, (arg,), stem="sort_", by_rows=dims != (0,))
