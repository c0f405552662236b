"""Rearrangements. Sizes that depend on a dynamic axis are read from shapes when the model runs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.ir import ops
from tilewright.ir.dtype import BOOL, int64, uint8
from tilewright.ir.op import REGISTRY

from ..align import Extent, Traced, Varying, across
from ..exporter import Exporter, form

END = np.iinfo(np.int64).max


def reshape_to(
    e: Exporter, x: str, shape: Sequence[Extent], source: Sequence[Extent] | None = None
) -> str:
    """x in another shape. In ONNX 0 stands for the size of `source` at the same place and -1 for
    the remaining size, so few sizes need to be computed."""
    sizes = list(shape)
    if not any(s == 0 for s in sizes):
        for i, size in enumerate(sizes):
            if isinstance(size, Varying) and source and i < len(source) and source[i] == size:
                sizes[i] = 0
        open_ = [i for i, s in enumerate(sizes) if isinstance(s, Varying)]
        if len(open_) == 1:
            sizes[open_[0]] = -1
    return e.add("Reshape", x, e.ints(sizes), **({} if not _empty(shape) else {"allowzero": 1}))


def _empty(shape: Sequence[Extent]) -> bool:
    return any(s == 0 for s in shape)


@form(REGISTRY["reshape"])
def reshape(e: Exporter, t: Traced, x: str) -> str:
    return reshape_to(e, x, t.shape, t.operands[0].shape)


@form(REGISTRY["permute"])
def permute(e: Exporter, t: Traced, x: str) -> str:
    return e.add("Transpose", x, perm=list(t.attrs[0]))


@form(REGISTRY["expand"])
def expand(e: Exporter, t: Traced, x: str) -> str:
    source = (1,) * (t.rank - t.operands[0].rank) + t.operands[0].shape
    # Expand broadcasts both ways, so 1 keeps the operand's size.
    sizes = [1 if a == b else b for a, b in zip(source, t.shape, strict=True)]
    return e.add("Expand", x, e.ints(sizes))


@form(REGISTRY["slice"])
def slice_(e: Exporter, t: Traced, x: str) -> str:
    starts: list[Extent] = []
    ends: list[Extent] = []
    axes: list[int] = []
    steps: list[Extent] = []
    for axis, (start, stop, step) in enumerate(zip(*t.attrs, strict=True)):
        size = t.operands[0].shape[axis]
        if start == 0 and stop == size and step == 1:
            continue
        axes.append(axis)
        starts.append(_from_end(start, size))
        ends.append(END if stop == size else _from_end(stop, size))
        steps.append(step)
    return e.add("Slice", x, e.ints(starts), e.ints(ends), e.ints(axes), e.ints(steps))


def _from_end(bound: Extent, size: Extent) -> Extent:
    """A bound at a fixed distance from the end, as a negative number; other bounds as they are."""
    if not isinstance(bound, Varying):
        return bound
    distance = across(lambda b, n: b - n, bound, size)
    return distance if isinstance(distance, int) and distance < 0 else bound


@form(REGISTRY["pad"])
def pad(e: Exporter, t: Traced, x: str, value: str) -> str:
    low, high, interior = t.attrs
    size = list(t.operands[0].shape)
    for axis, between in enumerate(interior):
        if between:
            x = _spread(e, t, x, axis, between, size)
            size[axis] = across(lambda n, b: n + max(n - 1, 0) * b, size[axis], between)
    if not any(low) and not any(high):
        return x
    narrow = t.dtype.category == BOOL  # onnxruntime pads no bools
    if narrow:
        x, value = e.cast(x, uint8), e.cast(value, uint8)
    out = e.add("Pad", x, e.ints([*low, *high]), value, mode="constant")
    return e.cast(out, t.dtype) if narrow else out


def _spread(
    e: Exporter, t: Traced, x: str, axis: int, between: Extent, size: Sequence[Extent]
) -> str:
    """x with `between` fill values after each element along `axis`, except the last."""
    value = e.value(t.operands[1])
    columns = e.add("Unsqueeze", x, e.ints([axis + 1]))
    rank = len(size) + 1
    pads: list[Extent] = [0] * (2 * rank)
    pads[rank + axis + 1] = between
    padded = e.add("Pad", columns, e.ints(pads), value)
    factor = across(lambda b: b + 1, between)
    spread = [across(lambda n, f: n * f, s, factor) if i == axis else s for i, s in enumerate(size)]
    flat = reshape_to(e, padded, spread, [*size[:axis], -1, *size[axis + 1 :]])
    last = across(lambda b: -b, between)
    return e.add("Slice", flat, e.ints([0]), e.ints([last]), e.ints([axis]), e.ints([1]))


@form(REGISTRY["flip"])
def flip(e: Exporter, t: Traced, x: str) -> str:
    axes = list(t.attrs[0])
    steps = [-1] * len(axes)
    return e.add("Slice", x, e.ints(steps), e.ints([-END] * len(axes)), e.ints(axes), e.ints(steps))


@form(REGISTRY["cat"])
def cat(e: Exporter, t: Traced, *parts: str) -> str:
    return e.add("Concat", *parts, axis=t.attrs[0])


@form(REGISTRY["windows"])
def windows(e: Exporter, t: Traced, x: str) -> str:
    """Gather each axis at the positions of its windows, and move the windows' contents to the
    end."""
    axes, sizes, steps, dilations = t.attrs
    rank = t.operands[0].rank
    order = list(range(rank))  # our dimension of each dimension of x
    for number, (axis, size, step, dilation) in enumerate(
        zip(axes, sizes, steps, dilations, strict=True)
    ):
        at = order.index(axis)
        positions = _positions(e, t.shape[axis], size, step, dilation)
        x = e.add("Gather", x, positions, axis=at)
        order.insert(at + 1, rank + number)
    perm = [order.index(i) for i in range(len(order))]
    return x if perm == sorted(perm) else e.add("Transpose", x, perm=perm)


def _positions(e: Exporter, count: Extent, size: Extent, step: int, dilation: int) -> str:
    """Positions [count, size]: i step + j dilation."""
    if isinstance(count, int) and isinstance(size, int):
        grid = np.arange(count)[:, None] * step + np.arange(size) * dilation
        return e.constant(grid.astype(np.int64))
    rows = e.add("Mul", e.add("Unsqueeze", arange(e, count), e.ints([1])), e.number(step, int64))
    return e.add("Add", rows, e.add("Mul", arange(e, size), e.number(dilation, int64)))


def arange(e: Exporter, size: Extent) -> str:
    """0, 1, …, size - 1 as int64."""
    if not isinstance(size, Varying):
        return e.constant(np.arange(size, dtype=np.int64))
    return e.add("Range", e.number(0, int64), e.extent0d(size), e.number(1, int64))


@form(ops.iota)
def iota(e: Exporter, t: Traced) -> str:
    return arange(e, t.shape[0])


@form(REGISTRY["copy_to"], ops.fetch)
def copy_to(e: Exporter, t: Traced, x: str) -> str:
    return x  # onnxruntime places values itself
