"""Reads and writes at positions that are data.

`gather` and `scatter` index the dimensions axis, axis + 1, … by one int64 tensor each, as NumPy's
advanced indexing does: the index tensors broadcast to one shape, which replaces these dimensions.
Indices are counted from the front; one that is out of range is an error when the graph runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import FLOAT8, accumulator, from_numpy, int64
from ..location import at_user_line
from ..node import Node
from ..numeric.positions import are_inside
from ..op import Aval, Kind, Op
from ..shape import Size, broadcast
from .binary import bitwise_and, eq, le, lt, minimum, shift_right
from .generate import iota
from .movement import expand, positions_along, reshape, slice_axis
from .ternary import where
from .unary import cast, full_like, logical_not, zeros_like

MODES = ("set", "add", "mul", "max", "min")


def indexed_shape(indices: Sequence[Node]) -> Size:
    """The common shape of the indices of one call; IndexError if there is none."""
    try:
        return broadcast(*(i.shape for i in indices))
    except RuntimeError:
        listed = ", ".join(str(list(i.shape)) for i in indices)
        raise IndexError(
            "shape mismatch: indexing tensors could not be broadcast together with shapes "
            f"{listed}{at_user_line()}"
        ) from None


def _indexed_shape(name: str, x: Node, indices: tuple[Node, ...], axis: int) -> Size:
    for index in indices:
        if index.dtype is not int64:
            raise IndexError(f"{name}: expected int64 indices, got {index.dtype}{at_user_line()}")
    if axis + len(indices) > x.rank:
        raise IndexError(
            f"{name}: too many indices for a tensor of dimension {x.rank}{at_user_line()}"
        )
    placed = indexed_shape(indices)
    return Size((*x.shape[:axis], *placed, *x.shape[axis + len(indices) :]))


def _gather_infer(x: Node, *args: Any) -> Aval:
    *indices, axis = args
    return _indexed_shape("gather", x, tuple(indices), axis), x.dtype


def _check(shape: Any, indices: Any, axis: int) -> None:
    for at, index in enumerate(indices, axis):
        if not are_inside(index, shape[at]):
            bad = index.min() if index.min() < 0 else index.max()
            raise IndexError(
                f"index {bad} is out of bounds for dimension {at} with size {shape[at]}"
            )


def _gather_numpy(x: Any, *args: Any) -> Any:
    *indices, axis = args
    _check(x.shape, indices, axis)
    return x[(*(slice(None),) * axis, *indices)]


def _gather_vjp(g: Node, out: Node, x: Node, *args: Any) -> tuple[Node | None, ...]:
    *indices, axis = args
    return scatter(zeros_like(x), g, *indices, axis, "add"), *(None for _ in indices)


gather = Op(
    "gather",
    Kind.GATHER,
    _gather_infer,
    params=("axis",),
    vjp=_gather_vjp,
    numpy=_gather_numpy,
    onnx="Gather",
)
"""gather(x, *indices, axis)."""


def _scatter_infer(base: Node, values: Node, *args: Any) -> Aval:
    *indices, axis, mode = args
    expected = _indexed_shape("scatter", base, tuple(indices), axis)
    if values.shape != expected or values.dtype is not base.dtype:
        raise RuntimeError(
            f"scatter: expected values of shape {tuple(expected)} and dtype {base.dtype}, "
            f"got {tuple(values.shape)} and {values.dtype}{at_user_line()}"
        )
    if mode not in MODES:
        raise ValueError(f"scatter: mode must be one of {MODES}, got {mode!r}")
    if mode != "set" and base.dtype in FLOAT8:
        raise NotImplementedError(
            f"scatter with mode {mode!r} is not implemented for {base.dtype}{at_user_line()}"
        )
    return base.shape, base.dtype


_UFUNC = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_numpy(base: Any, values: Any, *args: Any) -> Any:
    *indices, axis, mode = args
    _check(base.shape, indices, axis)
    place = (*(slice(None),) * axis, *indices)
    if mode == "set":
        out = np.array(base, order="C")
        out[place] = values
        return out
    out = base.astype(accumulator(from_numpy(base.dtype)).np)
    _UFUNC[mode].at(out, place, values.astype(out.dtype))
    return out.astype(base.dtype)


def _scatter_vjp(
    g: Node, out: Node, base: Node, values: Node, *args: Any
) -> tuple[Node | None, ...]:
    *indices, axis, mode = args
    none = tuple(None for _ in indices)
    if mode == "add":
        return g, gather(g, *indices, axis), *none
    if mode == "set":
        return (
            scatter(g, zeros_like(values), *indices, axis, "set"),
            gather(g, *indices, axis),
            *none,
        )
    whole = gather(out, *indices, axis)
    if mode in ("max", "min"):
        # All that equal the extremum share its cotangent evenly.
        mine, theirs = (cast(eq(*pair), g.dtype) for pair in ((base, out), (values, whole)))
        share = g / scatter(mine, theirs, *indices, axis, "add")
        return mine * share, theirs * gather(share, *indices, axis), *none
    # The product of the other factors: by division, unless a factor is zero.
    zeros = [eq(factor, zeros_like(factor)) for factor in (base, values)]
    first, factors = (where(z, full_like(f, 1), f) for z, f in zip(zeros, (base, values)))
    product = g * scatter(first, factors, *indices, axis, "mul")
    count = scatter(*(cast(z, g.dtype.to_real()) for z in zeros), *indices, axis, "add")
    nothing = [where(z, f, zeros_like(f)) for z, f in zip(zeros, (base, values))]
    total = scatter(*nothing, *indices, axis, "add")
    rest, many, sums = (gather(x, *indices, axis) for x in (product, count, total))
    return (
        _others(product, count, total, zeros[0], first, nothing[0]),
        _others(rest, many, sums, zeros[1], factors, nothing[1]),
        *none,
    )


def _others(
    product: Node, count: Node, total: Node, is_zero: Node, factor: Node, nothing: Node
) -> Node:
    """The product of all factors but one, from that of the factors that aren't zero. `count` of
    them are, and `total` is their sum: it has the derivative of the only other zero."""
    others = count - cast(is_zero, count.dtype)
    found = product / factor
    last = where(others > 1, zeros_like(product), found * (total - nothing))
    return where(others > 0, last, found)


scatter = Op(
    "scatter",
    Kind.SCATTER,
    _scatter_infer,
    params=("axis", "mode"),
    vjp=_scatter_vjp,
    numpy=_scatter_numpy,
    onnx="ScatterND",
)
"""scatter(base, values, *indices, axis, mode): base with values written (mode "set", the last one
wins), or combined in order ("add", "mul", "max", "min")."""


def _along(index: Node, axis: int) -> list[Node]:
    """An index tensor for every dimension: `index` for `axis`, its own position for the others."""
    return [index if i == axis else positions_along(i, index.shape) for i in range(index.rank)]


def take_along(x: Node, index: Node, axis: int) -> Node:
    """x at `index` along `axis` and at the same position elsewhere (torch.gather): the result has
    the shape of `index`, whose other sizes are at most those of `x`."""
    if x.rank == 0 or index.rank == 0:  # a 0-d tensor counts as a vector of one element
        return reshape(take_along(reshape(x, (-1,)), reshape(index, (-1,)), 0), index.shape)
    return gather(x, *_along(index, axis), 0)


def put_along(base: Node, values: Node, index: Node, axis: int, mode: str) -> Node:
    """base with `values` (of the shape of `index`) scattered to where `take_along` reads."""
    if base.rank == 0 or index.rank == 0:
        x, v, i = (reshape(n, (-1,)) for n in (base, values, index))
        return reshape(put_along(x, v, i, 0, mode), base.shape)
    return scatter(base, values, *_along(index, axis), 0, mode)


def _insertion_infer(lines: Node, values: Node, right: bool) -> Aval:
    if lines.rank != 1 and (lines.rank == 0 or lines.shape[:-1] != values.shape[:-1]):
        raise RuntimeError(
            "searchsorted(): boundaries tensor should be 1 dimension or the first N-1 dimensions "
            "of boundaries tensor and input value tensor must match, but we got boundaries tensor "
            f"{list(lines.shape)} and input value tensor {list(values.shape)}{at_user_line()}"
        )
    return values.shape, int64


def _insertion_numpy(lines: Any, values: Any, right: bool) -> Any:
    if lines.dtype.kind not in "biu" and (lines != lines).any():
        return _bisected(lines, values, right)
    side: Any = "right" if right else "left"
    if lines.ndim == 1:
        return np.asarray(np.searchsorted(lines, values, side), np.int64)
    found = np.empty(values.shape, np.int64)
    for at in np.ndindex(*lines.shape[:-1]):
        found[at] = np.searchsorted(lines[at], values[at], side)
    return found


def _bisected(lines: Any, values: Any, right: bool) -> Any:
    """As `_insertion`, of lines with NaN, which aren't in order wherever it stands."""
    found, left = np.zeros(values.shape, np.int64), np.full(values.shape, lines.shape[-1])
    while left.any():
        middle = found + (left >> 1)
        place = np.minimum(middle, lines.shape[-1] - 1)
        element = lines[place] if lines.ndim == 1 else np.take_along_axis(lines, place, -1)
        goes_on = ~(values < element if right else values <= element) & (left > 0)
        found = np.where(goes_on, middle + 1, found)
        left = np.where(goes_on, (left - 1) >> 1, left >> 1)
    return found


def _insertion(lines: Node, values: Node, right: bool) -> Node:
    """Bisection with PyTorch's middles, so that NaN in a line leads to the same place: whatever is
    compared with NaN goes on behind it."""
    size = lines.shape[-1]
    found = zeros_like(cast(values, int64))
    if not size:
        return found
    # A position instead of a constant, so that lines of another length take the same kernel.
    end = expand(
        reshape(slice_axis(iota(size), 0, size - 1, size), (1,) * values.rank), values.shape
    )
    one, left = full_like(found, 1), end + 1  # elements that are still in question
    for _ in range(size.bit_length()):
        half = shift_right(left, one)
        middle = found + half
        place = minimum(middle, end)
        is_one = lines.rank == 1
        element = gather(lines, place, 0) if is_one else take_along(lines, place, lines.rank - 1)
        stays = lt(values, element) if right else le(values, element)
        goes_on = bitwise_and(logical_not(stays), lt(zeros_like(left), left))
        found = where(goes_on, middle + 1, found)
        left = where(goes_on, shift_right(left - 1, one), half)
    return found


insertion = Op(
    "insertion",
    Kind.COMPOSITE,
    _insertion_infer,
    params=("right",),
    numpy=_insertion_numpy,
    decompose=_insertion,
)
"""insertion(lines, values, right): for each value the position (int64) before which it goes in the
sorted last dimension of `lines`; behind equal elements if `right`. There is one line for all
values, or one for each line of values. NaN goes behind all."""
