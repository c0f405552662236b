"""Pooling over the last dimensions of x[..., *size], one for each entry of `kernel`.

`padding` holds pairs (low, high). PyTorch's ceil_mode becomes a larger `high`, which `pool_padding`
works out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ..dtype import FLOAT, DType, int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Ints, Pairs, Size
from .binary import floor_divide, maximum, minimum, remainder
from .composite import composite, require_float
from .gather import gather
from .generate import constant, iota
from .movement import pad, positions_along, reshape, squeeze, window_count, windows
from .reduce import argmax, sum
from .select import first_max
from .ternary import where
from .unary import cast, full_like, zeros_like


def pool_padding(
    size: int, kernel: int, stride: int, padding: int, dilation: int = 1, ceil_mode: bool = False
) -> tuple[int, int]:
    """(low, high) of one dimension for PyTorch's symmetric `padding` and its `ceil_mode`."""
    if not ceil_mode:
        return padding, padding
    reach = dilation * (kernel - 1) + 1
    count = -(-(size + 2 * padding - reach) // stride) + 1
    # The last window must start inside the input or its left padding.
    if (count - 1) * stride >= size + padding:
        count -= 1
    return padding, max(padding, (count - 1) * stride + reach - size - padding)


def pooled_shape(
    name: str, x: Node, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints
) -> Size:
    """The shape of `x` with its last dimensions replaced by numbers of windows."""
    lead = x.rank - len(kernel)
    if lead < 0:
        raise RuntimeError(
            f"{name}: expected an input with at least {len(kernel)} dimensions, "
            f"got {tuple(x.shape)}{at_user_line()}"
        )
    sizes = [
        window_count(size + low + high, k, s, d)
        for size, k, s, (low, high), d in zip(
            x.shape[lead:], kernel, stride, padding, dilation, strict=True
        )
    ]
    if any(s <= 0 for s in sizes):
        raise RuntimeError(
            f"{name}: kernel {tuple(kernel)} is larger than the padded input "
            f"{tuple(x.shape[lead:])}: output size {tuple(sizes)} is too small{at_user_line()}"
        )
    return Size((*x.shape[:lead], *sizes))


def lowest(dtype: DType) -> Any:
    """The least value of `dtype`, which no maximum prefers to another."""
    if dtype.category == FLOAT:
        return -math.inf
    return -(2 ** (dtype.itemsize * 8 - 1)) if dtype.is_signed else 0


def _windows(
    x: Node, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints, fill: Any
) -> tuple[Node, tuple[int, ...]]:
    """The windows of `x` [..., *out, *kernel], and the axes of their contents."""
    lead = x.rank - len(kernel)
    outer = (0,) * lead
    low = [*outer, *(p[0] for p in padding)]
    high = [*outer, *(p[1] for p in padding)]
    padded = pad(x, low, high, value=constant(fill, x.dtype))
    view = windows(padded, range(lead, x.rank), kernel, stride, dilation)
    return view, tuple(range(x.rank, view.rank))


# Max pooling.


def _max_pool_infer(x: Node, *attrs: Any) -> Aval:
    return pooled_shape("max_pool", x, *attrs), x.dtype


def _max_pool(x: Node, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Node:
    view, inner = _windows(x, kernel, stride, padding, dilation, lowest(x.dtype))
    return squeeze(first_max(view, inner), inner)


max_pool = Op(
    "max_pool",
    Kind.COMPOSITE,
    _max_pool_infer,
    params=("kernel", "stride", "padding", "dilation"),
    decompose=_max_pool,
    onnx="MaxPool",
    cost=2,
    aten="max_pool2d",
)
"""max_pool(x, kernel, stride, padding, dilation): the largest element of each window; its gradient
goes to the first of them in row-major order."""


def max_pool_indices(x: Node, kernel: Ints, stride: Ints, padding: Pairs, dilation: Ints) -> Node:
    """Where `max_pool` found its elements: int64 row-major positions in the pooled dimensions."""
    view, inner = _windows(x, kernel, stride, padding, dilation, lowest(x.dtype))
    place = squeeze(argmax(view, inner), inner)
    lead = x.rank - len(kernel)
    starts = [
        positions_along(lead + i, place.shape) * s - low
        for i, (s, (low, _)) in enumerate(zip(stride, padding, strict=True))
    ]
    return _flat_position(place, kernel, starts, dilation, x.shape[lead:])


def _flat_position(
    place: Node, kernel: Ints, starts: Sequence[Node], dilation: Ints, sizes: Sequence[int]
) -> Node:
    """Positions in dimensions of `sizes`, from those in windows that begin at `starts`."""
    flat: Node | None = None
    inner = math.prod(kernel)
    for size, k, start, d in zip(sizes, kernel, starts, dilation, strict=True):
        inner //= k
        offset = remainder(floor_divide(place, constant(inner, int64)), constant(k, int64))
        # A window of nothing but padding and -inf begins before the input.
        at = maximum(start + offset * d, zeros_like(place))
        flat = at if flat is None else flat * size + at
    assert flat is not None, "pooling is over at least one dimension"
    return flat


# Average pooling.


def _avg_pool_infer(x: Node, kernel: Ints, stride: Ints, padding: Pairs, *_: Any) -> Aval:
    require_float("avg_pool", x)
    return pooled_shape("avg_pool", x, kernel, stride, padding, (1,) * len(kernel)), x.dtype


def _avg_pool(
    x: Node, kernel: Ints, stride: Ints, padding: Pairs, count_include_pad: bool, divisor: int
) -> Node:
    view, inner = _windows(x, kernel, stride, padding, (1,) * len(kernel), 0)
    total = squeeze(sum(view, inner), inner)
    if divisor:
        return total / divisor
    lead = x.rank - len(kernel)
    whole = 1  # the counts that are the same for every window
    for axis, (k, s, (low, high)) in enumerate(zip(kernel, stride, padding, strict=True), lead):
        # The part of `high` beyond `low` is there for ceil_mode and never counted.
        before, after = (low, min(low, high)) if count_include_pad else (0, 0)
        first, stop = -before, x.shape[axis] + after
        last = (total.shape[axis] - 1) * s - low
        if -low >= first and last + k <= stop:
            whole *= k
            continue
        start = positions_along(axis, total.shape) * s - low
        end = minimum(start + k, full_like(start, stop))
        total = total / cast(end - maximum(start, full_like(start, first)), x.dtype)
    return total / whole


avg_pool = composite(
    "avg_pool",
    _avg_pool_infer,
    _avg_pool,
    params=("kernel", "stride", "padding", "count_include_pad", "divisor_override"),
    onnx="AveragePool",
    cost=2,
)
"""avg_pool(x, kernel, stride, padding, count_include_pad, divisor_override): the mean of each
window, padding being zeros that count or don't; a divisor_override other than 0 replaces the count.
"""


# Adaptive pooling: window i of n covers floor(i size / n) … ceil((i + 1) size / n).


def _adaptive_infer(x: Node, sizes: tuple[int, ...]) -> Aval:
    lead = x.rank - len(sizes)
    if lead < 0 or 0 in x.shape[max(lead, 0) :]:
        raise RuntimeError(
            f"adaptive pool: expected an input with {len(sizes)} non-empty last dimensions, "
            f"got {tuple(x.shape)}{at_user_line()}"
        )
    return Size((*x.shape[:lead], *sizes)), x.dtype


def _is_regular(x: Node, sizes: tuple[int, ...]) -> bool:
    return all(n and s % n == 0 for s, n in zip(x.shape[x.rank - len(sizes) :], sizes, strict=True))


def _regular(x: Node, sizes: tuple[int, ...]) -> tuple[Any, ...]:
    """kernel, stride and padding where windows of one size tile the input."""
    kernel = tuple(s // n for s, n in zip(x.shape[x.rank - len(sizes) :], sizes, strict=True))
    return kernel, kernel, tuple((0, 0) for _ in sizes)


def _adaptive_starts(x: Node, sizes: tuple[int, ...]) -> list[tuple[Node, Node, int]]:
    """For each pooled dimension: where windows start, how long they are, and the longest."""
    out = []
    for size, n in zip(x.shape[x.rank - len(sizes) :], sizes, strict=True):
        i, count = iota(n), constant(max(n, 1), int64)
        start = floor_divide(i * size, count)
        length = floor_divide(i * size + (size + n - 1), count) - start
        longest = max((-(-(j + 1) * size // n) - j * size // n for j in range(n)), default=1)
        out.append((start, length, longest))
    return out


def _adaptive_windows(x: Node, sizes: tuple[int, ...]) -> tuple[Node, list[Node], list[int]]:
    """(windows [..., *out, *kernel], for each dimension whether an element is a repetition,
    kernel). Shorter windows repeat their last element."""
    dims = len(sizes)
    at, repeated, kernel = [], [], []
    for d, (start, length, longest) in enumerate(_adaptive_starts(x, sizes)):
        n = sizes[d]
        column = [n if i == d else 1 for i in range(2 * dims)]
        offset = reshape(iota(longest), [longest if i == dims + d else 1 for i in range(2 * dims)])
        count = reshape(length, column)
        at.append(reshape(start, column) + minimum(offset, count - 1))
        repeated.append(offset >= count)
        kernel.append(longest)
    return gather(x, *at, x.rank - dims), repeated, kernel


def _adaptive_avg(x: Node, sizes: tuple[int, ...]) -> Node:
    if _is_regular(x, sizes):
        return avg_pool(x, *_regular(x, sizes), False, 0)
    view, repeated, _ = _adaptive_windows(x, sizes)
    for each in repeated:
        view = where(each, zeros_like(view), view)
    inner = tuple(range(x.rank, view.rank))
    total = squeeze(sum(view, inner), inner)
    for d, (_, length, _) in enumerate(_adaptive_starts(x, sizes), x.rank - len(sizes)):
        column = [s if i == d else 1 for i, s in enumerate(total.shape)]
        total = total / cast(reshape(length, column), x.dtype)
    return total


def _adaptive_avg_infer(x: Node, sizes: tuple[int, ...]) -> Aval:
    require_float("adaptive_avg_pool", x)
    return _adaptive_infer(x, sizes)


adaptive_avg_pool = composite(
    "adaptive_avg_pool", _adaptive_avg_infer, _adaptive_avg, params=("sizes",), cost=2
)
"""adaptive_avg_pool(x, sizes): means of windows such that `sizes` of them cover the input."""


def _adaptive_max(x: Node, sizes: tuple[int, ...]) -> Node:
    if _is_regular(x, sizes):
        return max_pool(x, *_regular(x, sizes), (1,) * len(sizes))
    view, _, _ = _adaptive_windows(x, sizes)
    inner = tuple(range(x.rank, view.rank))
    return squeeze(first_max(view, inner), inner)


adaptive_max_pool = Op(
    "adaptive_max_pool",
    Kind.COMPOSITE,
    _adaptive_infer,
    params=("sizes",),
    decompose=_adaptive_max,
    cost=2,
)
"""adaptive_max_pool(x, sizes): maxima of windows such that `sizes` of them cover the input."""


def adaptive_max_pool_indices(x: Node, sizes: tuple[int, ...]) -> Node:
    """Where `adaptive_max_pool` found its elements: int64 row-major positions."""
    view, _, kernel = _adaptive_windows(x, sizes)
    inner = tuple(range(x.rank, view.rank))
    place = squeeze(argmax(view, inner), inner)
    lead = x.rank - len(sizes)
    starts = [
        reshape(start, [s if i == lead + d else 1 for i, s in enumerate(place.shape)])
        for d, (start, _, _) in enumerate(_adaptive_starts(x, sizes))
    ]
    return _flat_position(place, kernel, starts, (1,) * len(sizes), x.shape[lead:])
