"""Pooling. ONNX pools [n, c, *size], so other leading dimensions are folded into these two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.ops.pooling import pool_padding

from ..align import Extent, Traced, Varying, across, varies
from ..exporter import Exporter, form
from .movement import arange, reshape_to


def _with_channels(e: Exporter, t: Traced, x: str, dims: int, pool: Callable[[str], str]) -> str:
    """`pool` of x[n, c, *size]."""
    lead = t.rank - dims
    if lead == 2:
        return pool(x)
    source = t.operands[0]
    inner = tuple(source.shape[lead:])
    flat = _folded(e, x, inner, source.shape)
    return reshape_to(e, pool(flat), t.shape)


def _folded(e: Exporter, x: str, inner: Sequence[Extent], shape: Sequence[Extent]) -> str:
    """x as [1, all leading dimensions, *inner]."""
    if any(isinstance(s, Varying) for s in inner):
        return e.add("Reshape", x, e.add("Concat", e.ints([1, -1]), e.ints(inner), axis=0))
    return e.add("Reshape", x, e.ints([1, -1, *inner]))


def _pads(
    e: Exporter,
    t: Traced,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[tuple[int, Extent]],
    dilation: Sequence[int],
) -> dict[str, object]:
    """The attributes of the padding. What exceeds that of the low end is there for ceil_mode."""
    low = [p[0] for p in padding]
    if all(p[0] == p[1] for p in padding):
        return {"pads": [*low, *low]}
    sizes = t.operands[0].shape[t.rank - len(kernel) :]
    for size, (first, last), *how in zip(sizes, padding, kernel, stride, dilation, strict=True):
        k, s, d = how
        if (
            across(lambda n, k=k, s=s, p=first, d=d: pool_padding(n, k, s, p, d, True)[1], size)
            != last
        ):
            return {"pads": e.static(t, "padding", [*low, *(p[1] for p in padding)])}
    return {"pads": [*low, *low], "ceil_mode": 1}


@form(ops.max_pool)
def _max_pool(e: Exporter, t: Traced, x: str) -> str | None:
    kernel, stride, padding, dilation = t.attrs
    if not t.dtype.is_floating_point:
        return None
    e.static(t, "kernel", (kernel, stride, dilation))
    attributes = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        **_pads(e, t, kernel, stride, padding, dilation),
        "dilations": list(dilation),
    }
    return _with_channels(e, t, x, len(kernel), lambda y: e.add("MaxPool", y, **attributes))


@form(ops.avg_pool)
def _avg_pool(e: Exporter, t: Traced, x: str) -> str | None:
    kernel, stride, padding, include, divisor = t.attrs
    if _covers(t, kernel, stride, padding):
        return _with_channels(e, t, x, len(kernel), lambda y: e.add("GlobalAveragePool", y))
    e.static(t, "kernel", (kernel, stride))
    if divisor:
        return None
    attributes = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        **_pads(e, t, kernel, stride, padding, (1,) * len(kernel)),
        "count_include_pad": int(include),
    }
    return _with_channels(e, t, x, len(kernel), lambda y: e.add("AveragePool", y, **attributes))


def _covers(t: Traced, kernel: Sequence[Extent], stride: Sequence[Extent], padding: object) -> bool:
    """Whether one window covers the whole input, of varying size."""
    whole = t.operands[0].shape[t.rank - len(kernel) :]
    varies = any(isinstance(k, Varying) for k in kernel)
    return varies and tuple(kernel) == tuple(whole) and padding == ((0, 0),) * len(kernel)


@form(ops.adaptive_avg_pool, ops.adaptive_max_pool)
def _adaptive(e: Exporter, t: Traced, x: str) -> str | None:
    sizes = t.attrs[0]
    if not t.dtype.is_floating_point:
        return None
    if any(s != 1 for s in sizes):
        inner = t.operands[0].shape[t.rank - len(sizes) :]
        if not varies(inner):
            return None
        pool = _means if t.op is ops.adaptive_avg_pool else _maxima
        for axis, (size, count) in enumerate(zip(inner, sizes, strict=True), t.rank - len(sizes)):
            x = pool(e, t, x, axis, size, count)
        return x
    op_type = "GlobalAveragePool" if t.op is ops.adaptive_avg_pool else "GlobalMaxPool"
    return _with_channels(e, t, x, len(sizes), lambda y: e.add(op_type, y))


# Window i of n covers floor(i size / n) … ceil((i + 1) size / n), for sizes that vary.


def _means(e: Exporter, t: Traced, x: str, axis: int, size: Extent, count: Extent) -> str:
    """The means of windows along an axis, as a product with a matrix [count, size]."""
    whole, parts = e.extent(size), e.extent(count)
    number = e.add("Unsqueeze", arange(e, count), e.ints([1]))
    start = e.add("Div", e.add("Mul", number, whole), parts)
    next_ = e.add("Mul", e.add("Add", number, e.number(1, int64)), whole)
    end = e.add("Div", e.add("Add", next_, e.add("Sub", parts, e.ints([1]))), parts)
    place = arange(e, size)
    inside = e.add("And", e.add("GreaterOrEqual", place, start), e.add("Less", place, end))
    length = e.cast(e.add("Sub", end, start), t.dtype)
    weight = e.add("Div", e.cast(inside, t.dtype), length)
    if axis == t.rank - 2:
        return e.add("MatMul", weight, x)
    across_ = e.add("Transpose", weight, perm=[1, 0])
    if axis == t.rank - 1:
        return e.add("MatMul", x, across_)
    swapped = list(range(t.rank))
    swapped[axis], swapped[-1] = swapped[-1], axis
    moved = e.add("Transpose", x, perm=swapped)
    return e.add("Transpose", e.add("MatMul", moved, across_), perm=swapped)


def _maxima(e: Exporter, t: Traced, x: str, axis: int, size: Extent, count: Extent) -> str:
    """The maxima of windows along an axis, one slice for each."""
    e.static(t, "output size", count)
    assert isinstance(count, int)
    whole, parts, along = e.extent(size), e.ints([count]), e.ints([axis])
    found = []
    for i in range(count):
        start = e.add("Div", e.add("Mul", whole, e.ints([i])), parts)
        rounded = e.add("Add", e.add("Mul", whole, e.ints([i + 1])), e.ints([count - 1]))
        window = e.add("Slice", x, start, e.add("Div", rounded, parts), along)
        found.append(e.add("ReduceMax", window, along, keepdims=1))
    return e.add("Concat", *found, axis=axis)
