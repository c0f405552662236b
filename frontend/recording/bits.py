"""The bits of elements, read as elements of another dtype."""

from __future__ import annotations

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node

_WHOLE = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def read_as(x: Node, dtype: DType) -> Node:
    """`x`, of real numbers, as elements of a real dtype. Where their size differs, the last
    dimension gets shorter or longer."""
    old, new = x.dtype.itemsize, dtype.itemsize
    if old != new:
        whole = x if x.dtype is _WHOLE[old] else ops.bitcast(x, _WHOLE[old])
        x = _split(whole, old // new) if old > new else _joined(whole, new // old)
    return x if x.dtype is dtype else ops.bitcast(x, dtype)


def _split(x: Node, count: int) -> Node:
    """Each integer as `count` of the parts of its bits, the lowest first, as memory has them."""
    size = x.dtype.itemsize // count
    wide = (*x.shape, count)
    parts = ops.shift_right(ops.expand(ops.reshape(x, (*x.shape, 1)), wide), _places(x, wide, size))
    return ops.reshape(ops.cast(parts, _WHOLE[size]), (*x.shape[:-1], x.shape[-1] * count))


def _joined(x: Node, count: int) -> Node:
    """The inverse of `_split`."""
    size = x.dtype.itemsize
    shape = (*x.shape[:-1], x.shape[-1] // count)
    parts = ops.cast(ops.reshape(x, (*shape, count)), _WHOLE[size * count])
    mask = ops.full_like(parts, (1 << 8 * size) - 1)
    placed = ops.shift_left(ops.bitwise_and(parts, mask), _places(parts, parts.shape, size))
    whole = ops.sum(placed, (placed.rank - 1,))
    return ops.reshape(ops.cast(whole, _WHOLE[size * count]), shape)


def _places(x: Node, shape: tuple[int, ...], size: int) -> Node:
    """How many bits lie below each part of `size` bytes, along the last dimension of `shape`."""
    places = ops.cast(ops.iota(shape[-1]) * (8 * size), x.dtype)
    return ops.expand(places, shape)
