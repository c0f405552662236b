"""Diagonals and elements at fixed strides: an op that reads them, and one that writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..dtype import int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size, reshape_strides
from .binary import eq
from .gather import gather, scatter
from .generate import constant
from .movement import expand, pad, permute, positions_along, reshape, slice_axis, unsqueeze
from .ternary import where
from .unary import zeros_like


def diagonal_length(rows: int, columns: int, offset: int) -> int:
    """The number of elements of a matrix's diagonal."""
    return max(0, min(rows + min(offset, 0), columns - max(offset, 0)))


def _diagonal_infer(x: Node, offset: int, a: int, b: int) -> Aval:
    rest = [s for i, s in enumerate(x.shape) if i not in (a, b)]
    return Size((*rest, diagonal_length(x.shape[a], x.shape[b], offset))), x.dtype


def _diagonal(x: Node, offset: int, a: int, b: int) -> Node:
    """Each (n + 1)-th element of a matrix with n columns, from the first of the diagonal on."""
    rest = [i for i in range(x.rank) if i not in (a, b)]
    rows, columns = x.shape[a], x.shape[b]
    count = diagonal_length(rows, columns, offset)
    flat = reshape(permute(x, (*rest, a, b)), (*(x.shape[i] for i in rest), rows * columns))
    if not count:
        return slice_axis(flat, len(rest), 0, 0)
    start = max(offset, 0) + max(-offset, 0) * columns
    stop = start + (count - 1) * (columns + 1) + 1
    return slice_axis(flat, len(rest), start, stop, columns + 1)


def _diagonal_vjp(g: Node, out: Node, x: Node, offset: int, a: int, b: int) -> tuple[Node]:
    return (set_diagonal(zeros_like(x), g, offset, a, b),)


diagonal = Op(
    "diagonal",
    Kind.COMPOSITE,
    _diagonal_infer,
    params=("offset", "a", "b"),
    vjp=_diagonal_vjp,
    numpy=lambda x, offset, a, b: np.diagonal(x, offset, a, b),
    decompose=_diagonal,
    float8=True,
    complex=True,
    complex_half=True,
)
"""diagonal(x, offset, a, b): the elements whose position along b is their position along a plus
offset. They become the last dimension."""


def _set_diagonal_infer(x: Node, value: Node, offset: int, a: int, b: int) -> Aval:
    expected, dtype = _diagonal_infer(x, offset, a, b)
    if value.shape != expected or value.dtype is not dtype:
        raise RuntimeError(
            f"diagonal_scatter: expected a source of shape {list(expected)} and dtype {dtype}, "
            f"got {list(value.shape)} and {value.dtype}{at_user_line()}"
        )
    return x.shape, x.dtype


def _set_diagonal(x: Node, value: Node, offset: int, a: int, b: int) -> Node:
    """Fill each row with its element of the diagonal; one column takes it."""
    if 0 in value.shape:
        return x
    last, low = value.rank - 1, max(-offset, 0)
    lows, highs = [0] * value.rank, [0] * value.rank
    lows[last], highs[last] = low, x.shape[a] - low - value.shape[last]
    rows = pad(value, lows, highs)
    rest = [i for i in range(x.rank) if i not in (a, b)]
    lines = [*rest, a]
    rows = permute(rows, [lines.index(i) for i in range(x.rank) if i != b])
    here = eq(positions_along(a, x.shape) + constant(offset, int64), positions_along(b, x.shape))
    return where(expand(here, x.shape), expand(unsqueeze(rows, b), x.shape), x)


def _set_diagonal_vjp(
    g: Node, out: Node, x: Node, value: Node, offset: int, a: int, b: int
) -> tuple[Node, Node]:
    return (
        set_diagonal(g, zeros_like(value), offset, a, b),
        diagonal(g, offset, a, b),
    )


def _set_diagonal_numpy(x: Any, value: Any, offset: int, a: int, b: int) -> Any:
    out = x.copy()
    moved = np.moveaxis(out, (a, b), (-2, -1))
    i = np.arange(value.shape[-1])
    moved[..., i + max(-offset, 0), i + max(offset, 0)] = value
    return out


set_diagonal = Op(
    "set_diagonal",
    Kind.COMPOSITE,
    _set_diagonal_infer,
    params=("offset", "a", "b"),
    vjp=_set_diagonal_vjp,
    numpy=_set_diagonal_numpy,
    decompose=_set_diagonal,
    float8=True,
    complex=True,
    complex_half=True,
)
"""set_diagonal(x, value, offset, a, b): x with that diagonal replaced."""


def _places(shape: Sequence[int], strides: Sequence[int], offset: int) -> Node:
    """The places in memory of the elements of (shape, strides, offset)."""
    total = expand(constant(offset, int64), shape)
    for axis, stride in enumerate(strides):
        total = total + positions_along(axis, shape) * constant(stride, int64)
    return total


def memory_slice(
    shape: Sequence[int], strides: Sequence[int], offset: int
) -> tuple[int, int, int] | None:
    """(start, stop, step) of the slice of memory that a tensor with these strides covers; None if
    it is no slice."""
    count = math.prod(shape)
    along = reshape_strides(shape, strides, (count,)) if count else None
    if along is None or (along[0] <= 0 and count > 1):
        return None
    step = max(along[0], 1)
    return offset, offset + (count - 1) * step + 1, step


def strided(x: Node, shape: Sequence[int], strides: Sequence[int], offset: int) -> Node:
    """The elements of `x` at these strides of its row-major memory."""
    flat, part = reshape(x, (-1,)), memory_slice(shape, strides, offset)
    if part is not None:
        return reshape(slice_axis(flat, 0, *part), shape)
    return gather(flat, _places(shape, strides, offset), 0)


def set_strided(
    x: Node, value: Node, shape: Sequence[int], strides: Sequence[int], offset: int
) -> Node:
    """`x` with the elements at these strides replaced; of several at one place one counts."""
    flat = reshape(x, (-1,))
    return reshape(scatter(flat, value, _places(shape, strides, offset), 0, "set"), x.shape)
