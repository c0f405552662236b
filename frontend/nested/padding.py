"""Nested tensors as padded dense ones, and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.node import Node

from ..recording import record
from ..recording.builders import builder

if TYPE_CHECKING:
    from .tensors import Nested


@builder("to_padded_tensor", gradient="NestedToPaddedTensorBackward0")
def _padded(
    x: Node, offsets: Node, lengths: Node | None, axis: int, size: int, padding: Any
) -> Node:
    """Rows along `axis` as [sequences, ..., size, ...]."""
    count = offsets.shape[0] - 1
    offsets = ops.cast(offsets, dtypes.int64)
    begins = ops.slice_axis(offsets, 0, 0, count)
    many = (
        ops.slice_axis(offsets, 0, 1, count + 1) - begins
        if lengths is None
        else ops.cast(lengths, dtypes.int64)
    )
    place = ops.iota(size)
    exists = ops.lt(
        ops.expand(place, (count, size)), ops.expand(ops.unsqueeze(many, 1), (count, size))
    )
    total = x.shape[axis]
    order = (axis, *range(axis), *range(axis + 1, x.rank))
    rows = ops.permute(x, order)
    if not total:
        filling = ops.constant(padding, x.dtype)
        made = ops.expand(filling, (count, size, *rows.shape[1:]))
    else:
        at = ops.where(exists, ops.unsqueeze(begins, 1) + place, ops.constant(0, dtypes.int64))
        at = ops.minimum(ops.maximum(at, ops.zeros_like(at)), ops.full_like(at, total - 1))
        made = ops.gather(rows, at, 0)
        mask = ops.reshape(exists, (count, size, *(1,) * (rows.rank - 1)))
        made = ops.where(ops.expand(mask, made.shape), made, ops.constant(padding, x.dtype))
    back = (0, *range(2, axis + 2), 1, *range(axis + 2, made.rank))
    return ops.permute(made, back)


def padded(t: Nested, padding: Any, size: int | None = None) -> Any:
    """A dense tensor [sequences, ..., size, ...]: of the longest sequence's size by default."""
    rows = t._rows
    size = rows.longest() if size is None else size
    if t.dtype.is_floating_point or t.dtype.is_complex:
        padding = float(padding)
    else:
        padding = bool(padding) if t.dtype is dtypes.bool_ else int(padding)
    axis = t._ragged_idx - 1
    return record(_padded, t._elements, rows.offsets, rows.lengths, axis, int(size), padding)


@builder("nested_from_padded", gradient="NestedFromPaddedTensorBackward0")
def _packed(x: Node, offsets: Node, numbers: Node, ragged: int) -> Node:
    """The rows [..., total, ...] of a padded tensor."""
    total = numbers.shape[0]
    begins = ops.gather(ops.cast(offsets, dtypes.int64), numbers, 0)
    within = ops.iota(total) - begins
    order = (0, ragged, *(i for i in range(1, x.rank) if i != ragged))
    rows = ops.gather(ops.permute(x, order), numbers, within, 0)
    axis = ragged - 1
    return ops.permute(rows, (*range(1, axis + 1), 0, *range(axis + 1, rows.rank)))


def unpadded(x: Any, like: Nested, ragged: int) -> Any:
    """The elements of a padded tensor for the sequences of `like`, which has no gaps. ragged: the
    dimension in which they lie in `x`."""
    rows, total = like._rows, like._elements.shape[like._ragged_idx - 1]
    return record(_packed, x, rows.offsets, rows.numbers(total), ragged)
