"""Bags of embeddings."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilewright.ir import ops
from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from ...functions.promotion import to
from ...recording import record_fallible
from ...recording.builders import builder
from .linear import _embedding, _indices, _no_frequency, limit_rows

if TYPE_CHECKING:
    from ..._tensor import Tensor


def _bags(offsets: Node, count: int, last: bool) -> tuple[Node, int]:
    """The bag of each of `count` indices, and how many bags there are."""
    bags = offsets.shape[0] - last
    begun = ops.ge(ops.unsqueeze(ops.iota(count), 1), ops.slice_axis(_indices(offsets), 0, 0, bags))
    return ops.sum(to(begun, int64), (1,)) - 1, bags


@builder("embedding_bag")
def _embedding_bag(
    index: Node,
    weight: Node,
    offsets: Node | None,
    scale: Node | None,
    mode: str,
    last: bool,
    padding: int,
    by_frequency: bool,
    sparse: bool,
) -> Node:
    if not weight.dtype.is_floating_point:
        raise RuntimeError(
            f"embedding_bag: expected weights of a floating point dtype, got {weight.dtype}"
            f"{at_user_line()}"
        )
    if offsets is None and mode != "max":
        return _sum_of_rows(index, weight, scale, mode, padding, by_frequency, sparse)
    if offsets is None:
        bags = index.shape[0]
        bag = ops.reshape(ops.expand(ops.unsqueeze(ops.iota(bags), 1), index.shape), (-1,))
        index = ops.reshape(index, (-1,))
        scale = None if scale is None else ops.reshape(scale, (-1,))
    else:
        bag, bags = _bags(offsets, index.shape[0], last)
        bag = ops.reshape(bag, index.shape)
    index = _indices(index)
    rows = _embedding(index, weight, padding, by_frequency, "element", sparse)
    real = ops.ne(index, ops.full_like(index, padding))  # no index is negative
    column = ops.unsqueeze(real, 1)
    shape = (bags, weight.shape[1])
    zero = ops.constant(0, rows.dtype)
    if mode == "max":
        column = _first_largest(rows, column, bag, bags)
    elif scale is not None:
        rows = rows * ops.unsqueeze(scale, 1)
    total = ops.scatter(ops.expand(zero, shape), ops.where(column, rows, zero), bag, 0, "add")
    if mode != "mean":
        return total
    members = ops.scatter(ops.expand(zero, (bags,)), to(real, rows.dtype), bag, 0, "add")
    return total / ops.unsqueeze(ops.maximum(members, ops.full_like(members, 1)), 1)


def _sum_of_rows(
    index: Node,
    weight: Node,
    scale: Node | None,
    mode: str,
    padding: int,
    by_frequency: bool,
    sparse: bool,
) -> Node:
    """The sum or mean of each row of `index[bags, size]`, which is a bag."""
    index = _indices(index)
    rows = _embedding(index, weight, padding, by_frequency, "element", sparse)
    if scale is not None:
        rows = rows * ops.unsqueeze(scale, 2)
    members = ops.constant(index.shape[1], rows.dtype)
    if padding >= 0:
        real = ops.ne(index, ops.full_like(index, padding))
        rows = ops.where(ops.unsqueeze(real, 2), rows, ops.constant(0, rows.dtype))
        members = ops.sum(to(real, rows.dtype), (1,))
    total = ops.reshape(ops.sum(rows, (1,)), (index.shape[0], weight.shape[1]))
    return total / ops.maximum(members, ops.full_like(members, 1)) if mode == "mean" else total


def _first_largest(rows: Node, counts: Node, bag: Node, bags: int) -> Node:
    """Mark the first of the largest elements in each bag and column."""
    count, width = rows.shape
    rows = ops.detach(rows)
    nothing = ops.constant(-math.inf, rows.dtype)
    start = ops.expand(nothing, (bags, width))
    top = ops.scatter(start, ops.where(counts, rows, nothing), bag, 0, "max")
    largest = ops.bitwise_and(counts, ops.eq(rows, ops.gather(top, bag, 0)))
    nowhere = ops.constant(count, int64)
    place = ops.where(largest, ops.unsqueeze(ops.iota(count), 1), nowhere)
    first = ops.scatter(ops.expand(nowhere, (bags, width)), place, bag, 0, "min")
    return ops.bitwise_and(largest, ops.eq(place, ops.gather(first, bag, 0)))


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """The sum, mean or max of the rows of weight[n, d] in each bag of indices: [bags, d].

    A bag is a row of input[bags, size]; or it begins at offsets[bag] in input[count] and ends where
    the next one begins. per_sample_weights, of input's shape, scale the rows (mode sum). An empty
    bag gives zeros. The row padding_idx doesn't count. max_norm, scale_grad_by_freq,
    sparse: as in `embedding`; no sparse gradient in mode max.
    """
    if mode not in ("sum", "mean", "max"):
        raise ValueError(f"mode has to be one of sum, mean or max{at_user_line()}")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError(
            f"max mode does not support scaling the gradient by the frequency{at_user_line()}"
        )
    if mode == "max" and sparse:
        raise ValueError(f"max mode does not support sparse weights{at_user_line()}")
    if sparse and scale_grad_by_freq:
        _no_frequency()
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}'){at_user_line()}"
        )
    if input.dim() not in (1, 2) or (input.dim() == 2) != (offsets is None):
        raise ValueError(
            "embedding_bag: expected an input of 2 dimensions without offsets, or of 1 dimension "
            f"with them, got {input.dim()}{at_user_line()}"
        )
    if padding_idx is not None:
        padding_idx %= weight.shape[0]
    limit_rows(weight, input, max_norm, norm_type)
    return record_fallible(
        _embedding_bag, input, weight, offsets, per_sample_weights, mode,
        bool(include_last_offset), -1 if padding_idx is None else padding_idx,
        bool(scale_grad_by_freq), bool(sparse),
    )  # fmt: skip
