"""Rearrangements of elements by an index map that the attrs fix.

Codegen folds them into the loads of their readers; they cost nothing of their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Ints, Size, broadcast, infer_reshape, require_positive
from .generate import constant, iota


def _reshape_infer(x: Node, shape: tuple[int, ...]) -> Aval:
    return infer_reshape(x.shape, shape), x.dtype


reshape_op = Op(
    "reshape",
    Kind.MOVEMENT,
    _reshape_infer,
    params=("shape",),
    vjp=lambda g, out, x, shape: (reshape(g, x.shape),),
    numpy=lambda x, shape: np.reshape(x, shape),
    whole=True,
    bijective=True,
)


def reshape(x: Node, shape: Sequence[int]) -> Node:
    """`x` in another shape (one size may be -1), elements in row-major order."""
    target = infer_reshape(x.shape, shape)
    return x if target == x.shape else reshape_op(x, tuple(target))


def positions_along(axis: int, shape: Sequence[int]) -> Node:
    """0, 1, … along `axis` of `shape`, of size 1 in the other dimensions."""
    return reshape(iota(shape[axis]), [n if i == axis else 1 for i, n in enumerate(shape)])


def _permute_infer(x: Node, order: tuple[int, ...]) -> Aval:
    if sorted(order) != list(range(x.rank)):
        raise RuntimeError(f"permute: {order} is no order of {x.rank} dimensions{at_user_line()}")
    return Size(x.shape[i] for i in order), x.dtype


def inverse_order(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argsort(order))


permute_op = Op(
    "permute",
    Kind.MOVEMENT,
    _permute_infer,
    params=("order",),
    vjp=lambda g, out, x, order: (permute(g, inverse_order(order)),),
    numpy=lambda x, order: np.transpose(x, order),
    whole=True,
    bijective=True,
)


def permute(x: Node, order: Sequence[int]) -> Node:
    """Dimension i of the result is dimension order[i] of `x`."""
    return x if tuple(order) == tuple(range(x.rank)) else permute_op(x, tuple(order))


def transpose(x: Node, a: int = -2, b: int = -1) -> Node:
    """`x` with two dimensions swapped."""
    order = list(range(x.rank))
    order[a], order[b] = order[b], order[a]
    return permute(x, order)


def _expand_infer(x: Node, shape: tuple[int, ...]) -> Aval:
    if broadcast(x.shape, shape) != tuple(shape):
        raise RuntimeError(f"expand: can't expand {x.shape} to {tuple(shape)}{at_user_line()}")
    return Size(shape), x.dtype


expand_op = Op(
    "expand",
    Kind.MOVEMENT,
    _expand_infer,
    params=("shape",),
    vjp=lambda g, out, x, shape: (sum_to(g, x.shape),),
    numpy=lambda x, shape: np.broadcast_to(x, shape),
    whole=True,
)


def expand(x: Node, shape: Sequence[int]) -> Node:
    """`x` broadcast to `shape`."""
    return x if tuple(shape) == x.shape else expand_op(x, tuple(shape))


def sum_to(x: Node, shape: Sequence[int]) -> Node:
    """`x` summed over the dimensions that broadcasting from `shape` gave it."""
    if x.shape == shape or x.shape == tuple(shape):
        return x
    from .reduce import sum

    extra = x.rank - len(shape)
    axes = tuple(
        i for i, size in enumerate(x.shape) if i < extra or (shape[i - extra] == 1 and size != 1)
    )
    return reshape(sum(x, axes), shape)


def _slice_infer(
    x: Node, starts: tuple[int, ...], stops: tuple[int, ...], steps: tuple[int, ...]
) -> Aval:
    sizes = [max(0, -(-(b - a) // s)) for a, b, s in zip(starts, stops, steps, strict=True)]
    return Size(sizes), x.dtype


def _slice_vjp(g: Node, out: Node, x: Node, starts: Ints, stops: Ints, steps: Ints) -> tuple[Node]:
    high = [
        n - a - ((m - 1) * s + 1 if m else 0)
        for n, m, a, s in zip(x.shape, out.shape, starts, steps, strict=True)
    ]
    return (pad(g, starts, high, [s - 1 for s in steps]),)


slice_op = Op(
    "slice",
    Kind.MOVEMENT,
    _slice_infer,
    params=("starts", "stops", "steps"),
    vjp=_slice_vjp,
    numpy=lambda x, starts, stops, steps: x[tuple(map(slice, starts, stops, steps))],
)


def slice_(x: Node, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Node:
    """x[starts:stops:steps] in every dimension; bounds lie within `x`, steps are positive."""
    if all(
        a == 0 and b >= n and s == 1
        for a, b, s, n in zip(starts, stops, steps, x.shape, strict=True)
    ):
        return x
    return slice_op(x, tuple(starts), tuple(stops), tuple(steps))


def slice_axis(x: Node, axis: int, start: int, stop: int, step: int = 1) -> Node:
    starts, stops, steps = [0] * x.rank, list(x.shape), [1] * x.rank
    starts[axis], stops[axis], steps[axis] = start, stop, step
    return slice_(x, starts, stops, steps)


def _padded_size(size: int, low: int, high: int, interior: int) -> int:
    return low + high + size + max(size - 1, 0) * interior


def _pad_infer(x: Node, value: Node, low: Ints, high: Ints, interior: Ints) -> Aval:
    if value.shape != () or value.dtype is not x.dtype:
        raise RuntimeError(f"pad: expected a 0-d value of dtype {x.dtype}{at_user_line()}")
    return Size(map(_padded_size, x.shape, low, high, interior)), x.dtype


def _pad_numpy(x: Any, value: Any, low: Ints, high: Ints, interior: Ints) -> Any:
    out = np.full(list(map(_padded_size, x.shape, low, high, interior)), value, dtype=x.dtype)
    if x.size:
        region = [
            slice(a, a + (n - 1) * (i + 1) + 1, i + 1)
            for n, a, i in zip(x.shape, low, interior, strict=True)
        ]
        out[tuple(region)] = x
    return out


def _pad_vjp(
    g: Node, out: Node, x: Node, value: Node, low: Ints, high: Ints, interior: Ints
) -> tuple[Node, Node | None]:
    stops = [
        a + max((n - 1) * (i + 1) + 1, 0) for n, a, i in zip(x.shape, low, interior, strict=True)
    ]
    dx = slice_(g, low, stops, [i + 1 for i in interior])
    if not value.requires_grad:
        return dx, None
    from .reduce import sum

    every = tuple(range(g.rank))
    return dx, reshape(sum(g, every), ()) - reshape(sum(dx, every), ())


pad_op = Op(
    "pad",
    Kind.MOVEMENT,
    _pad_infer,
    params=("low", "high", "interior"),
    vjp=_pad_vjp,
    numpy=_pad_numpy,
    onnx="Pad",
    aten="constant_pad_nd",
)


def pad(
    x: Node,
    low: Sequence[int],
    high: Sequence[int],
    interior: Sequence[int] | None = None,
    value: Node | None = None,
) -> Node:
    """`x` with elements of `value` (default zero) before, after and between its own."""
    inside = (0,) * x.rank if interior is None else tuple(interior)
    if not any(low) and not any(high) and not any(inside):
        return x
    fill = constant(0, x.dtype) if value is None else value
    return pad_op(x, fill, tuple(low), tuple(high), inside)


_WHOLE, _BACK = slice(None), slice(None, None, -1)
flip_op = Op(
    "flip",
    Kind.MOVEMENT,
    lambda x, axes: (x.shape, x.dtype),
    params=("axes",),
    vjp=lambda g, out, x, axes: (flip(g, axes),),
    numpy=lambda x, axes: x[tuple([_BACK if i in axes else _WHOLE for i in range(x.ndim)])],
    whole=True,
    bijective=True,
)


def flip(x: Node, axes: Sequence[int]) -> Node:
    """`x` with the order of its elements reversed along `axes`."""
    return flip_op(x, tuple(axes)) if axes else x


def _cat_infer(*args: Any) -> Aval:
    *parts, axis = args
    first = parts[0]
    for part in parts[1:]:
        same = part.rank == first.rank and all(
            i == axis or a == b
            for i, (a, b) in enumerate(zip(part.shape, first.shape, strict=True))
        )
        if not same:
            raise RuntimeError(
                f"cat: sizes must match except in dimension {axis}: "
                f"got {tuple(first.shape)} and {tuple(part.shape)}{at_user_line()}"
            )
        if part.dtype is not first.dtype:
            raise RuntimeError(f"cat: dtypes differ: {first.dtype}, {part.dtype}{at_user_line()}")
    sizes = list(first.shape)
    sizes[axis] = sum(part.shape[axis] for part in parts)
    return Size(sizes), first.dtype


def _cat_vjp(g: Node, out: Node, *args: Any) -> tuple[Node, ...]:
    *parts, axis = args
    grads, start = [], 0
    for part in parts:
        stop = start + part.shape[axis]
        grads.append(slice_axis(g, axis, start, stop))
        start = stop
    return tuple(grads)


cat_op = Op(
    "cat",
    Kind.MOVEMENT,
    _cat_infer,
    params=("axis",),
    vjp=_cat_vjp,
    numpy=lambda *args: np.concatenate(args[:-1], args[-1]),
    whole=True,
)


def cat(parts: Sequence[Node], axis: int) -> Node:
    """`parts` one after another along `axis`."""
    return parts[0] if len(parts) == 1 else cat_op(*parts, axis)


def window_count(size: int, window: int, step: int, dilation: int) -> int:
    """How many windows of `window` elements, `dilation` apart, start every `step` elements."""
    return (size - dilation * (window - 1) - 1) // step + 1


def _windows_infer(x: Node, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints) -> Aval:
    require_positive("windows", stride=steps, dilation=dilations)
    out = list(x.shape)
    for axis, *rest in zip(axes, sizes, steps, dilations, strict=True):
        out[axis] = window_count(x.shape[axis], *rest)
        if out[axis] <= 0:
            raise RuntimeError(
                f"window of {rest[0]} elements (dilation {rest[2]}) is larger than the input "
                f"size {x.shape[axis]}{at_user_line()}"
            )
    return Size((*out, *sizes)), x.dtype


def _windows_numpy(x: Any, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints) -> Any:
    shape, strides = list(x.shape), list(x.strides)
    for axis, size, step, dilation in zip(axes, sizes, steps, dilations, strict=True):
        shape[axis] = window_count(x.shape[axis], size, step, dilation)
        strides[axis] = x.strides[axis] * step
        shape.append(size)
        strides.append(x.strides[axis] * dilation)
    return np.lib.stride_tricks.as_strided(x, shape, strides, writeable=False)


def _windows_vjp(
    g: Node, out: Node, x: Node, axes: Ints, sizes: Ints, steps: Ints, dilations: Ints
) -> tuple[Node]:
    return (fold(g, x.shape, axes, sizes, steps, dilations),)


windows_op = Op(
    "windows",
    Kind.MOVEMENT,
    _windows_infer,
    params=("axes", "sizes", "steps", "dilations"),
    vjp=_windows_vjp,
    numpy=_windows_numpy,
    aten="unfold",
)


def windows(
    x: Node,
    axes: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    dilations: Sequence[int],
) -> Node:
    """Sliding windows over `axes`: each becomes the number of windows, their contents come last."""
    return windows_op(x, tuple(axes), tuple(sizes), tuple(steps), tuple(dilations))


def fold(
    g: Node,
    shape: Sequence[int],
    axes: Sequence[int],
    sizes: Sequence[int],
    steps: Sequence[int],
    dilations: Sequence[int],
) -> Node:
    """The adjoint of `windows`: overlapping windows summed into a tensor of `shape`."""
    for axis, *rest in reversed(list(zip(axes, sizes, steps, dilations, strict=True))):
        g = _fold_axis(g, shape[axis], axis, *rest)
    return g


_LONG = 32
"""Up to so many elements of a window are added one by one."""


def _fold_axis(g: Node, target: int, axis: int, size: int, step: int, dilation: int) -> Node:
    """`g` with the contents of windows, its last dimension, summed into `axis` of size `target`."""
    last = g.rank - 1
    lead, rest = g.shape[:axis], g.shape[axis + 1 : last]
    if step >= size and (dilation == 1 or size == 1):
        # Windows side by side, and the gaps between them.
        count = g.shape[axis]
        g = permute(g, (*range(axis + 1), last, *range(axis + 1, last)))
        g = _padded_to(g, axis + 1, step)
        return _padded_to(reshape(g, (*lead, count * step, *rest)), axis, target)
    total: Node | None = None
    if size > _LONG and dilation == 1:
        # Pieces as long as the step, each side by side with the same piece of other windows.
        for start in range(0, size, step):
            stop = min(start + step, size)
            part = slice_axis(g, last, start, stop)
            none = [0] * last
            before = [start if i == axis else 0 for i in range(last)]
            part = pad(_fold_axis(part, target - start, axis, stop - start, step, 1), before, none)
            total = part if total is None else total + part
        assert total is not None
        return total
    for place in range(size):
        part = reshape(slice_axis(g, last, place, place + 1), g.shape[:last])
        low, high, interior = [0] * last, [0] * last, [0] * last
        low[axis], interior[axis] = place * dilation, step - 1
        high[axis] = target - _padded_size(part.shape[axis], low[axis], 0, step - 1)
        part = pad(part, low, high, interior)
        total = part if total is None else total + part
    assert total is not None, "a window holds at least one element"
    return total


def _padded_to(x: Node, axis: int, size: int) -> Node:
    """`x` with `axis` brought to `size`: zeros are added at the end, or elements cut off."""
    if x.shape[axis] >= size:
        return slice_axis(x, axis, 0, size)
    high = [size - x.shape[axis] if i == axis else 0 for i in range(x.rank)]
    return pad(x, [0] * x.rank, high)


def squeeze(x: Node, axes: Sequence[int]) -> Node:
    """`x` without the size-1 dimensions `axes`."""
    return reshape(x, [s for i, s in enumerate(x.shape) if i not in axes])


def unsqueeze(x: Node, axis: int) -> Node:
    """`x` with a dimension of size 1 put in at `axis` (of the result)."""
    return reshape(x, (*x.shape[:axis], 1, *x.shape[axis:]))


def elements(shape: Sequence[int]) -> int:
    return math.prod(shape)
