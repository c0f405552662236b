"""Pooling. ONNX pools [n, c, *size], so other leading dimensions are folded into these two."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilewright.ir import ops

from ..align import Extent, Traced, Varying
from ..exporter import Exporter, form
from .movement import reshape_to


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


def _pads(padding: Sequence[tuple[int, int]]) -> list[int]:
    return [p[0] for p in padding] + [p[1] for p in padding]


@form(ops.max_pool)
def _max_pool(e: Exporter, t: Traced, x: str) -> str | None:
    kernel, stride, padding, dilation = e.static(t, "padding", t.attrs)
    if not t.dtype.is_floating_point:
        return None
    attributes = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        "pads": _pads(padding),
        "dilations": list(dilation),
    }
    return _with_channels(e, t, x, len(kernel), lambda y: e.add("MaxPool", y, **attributes))


@form(ops.avg_pool)
def _avg_pool(e: Exporter, t: Traced, x: str) -> str | None:
    kernel, stride, padding, include, divisor = t.attrs
    if _covers(t, kernel, stride, padding):
        return _with_channels(e, t, x, len(kernel), lambda y: e.add("GlobalAveragePool", y))
    e.static(t, "kernel", (kernel, stride, padding))
    # Padding by ceil_mode at the high end doesn't count. ONNX's pads can't express that.
    if divisor or (include and any(low != high for low, high in padding)):
        return None
    attributes = {
        "kernel_shape": list(kernel),
        "strides": list(stride),
        "pads": _pads(padding),
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
    if any(s != 1 for s in sizes) or not t.dtype.is_floating_point:
        return None
    op_type = "GlobalAveragePool" if t.op is ops.adaptive_avg_pool else "GlobalMaxPool"
    return _with_channels(e, t, x, len(sizes), lambda y: e.add(op_type, y))
