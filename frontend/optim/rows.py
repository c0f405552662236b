"""Steps by sparse gradients, which change the rows that the gradient names and no others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir import ops
from tilewright.ir.dtype import DType
from tilewright.ir.node import Node

from .. import recording
from ..functions.promotion import to
from ..recording import revalued


def step_rows(
    build: Callable[..., tuple[Node, ...]],
    attrs: tuple[Any, ...],
    numbers: Sequence[Node],
    gradient: Any,
    *tensors: Any,
) -> None:
    """Record the step of one parameter by a sparse gradient.

    tensors: the parameter and its states. build(attrs, g, *numbers, *rows) returns the new rows of
    each, of the rows that the gradient names, and of the gradient's. Rows that it names twice are
    there twice, with the whole sum as gradient.
    """
    made = recording.node_of(
        _stepped, gradient._elements, gradient._at, *numbers, *tensors, build, attrs,
        len(numbers), gradient._is_merged,
    )  # fmt: skip
    recording.assign_all(tensors, made)


def _stepped(values: Node, at: Node, *args: Any) -> tuple[Node, ...]:
    *nodes, build, attrs, count, is_merged = args
    numbers, tables = nodes[:count], nodes[count:]
    shape = tables[0].shape
    index, size = _row_numbers(at, shape)
    flat = [ops.reshape(t, (size, *shape[at.shape[0] :])) for t in tables]
    g = values if is_merged else _whole(values, index, size)
    rows = [ops.gather(t, index, 0) for t in flat]
    made = build(attrs, g, *numbers, *rows)
    return tuple(
        revalued(t, ops.reshape(ops.scatter(f, to(new, t.dtype), index, 0, "set"), shape))
        for t, f, new in zip(tables, flat, made, strict=True)
    )


def _row_numbers(at: Node, shape: Sequence[int]) -> tuple[Node, int]:
    """Positions at[dims, k] as numbers of rows, and how many rows there are."""
    dims = at.shape[0]
    index = ops.expand(ops.constant(0, at.dtype), (at.shape[1],))
    for i in range(dims):
        row = ops.reshape(ops.slice_axis(at, 0, i, i + 1), (at.shape[1],))
        index = row if i == 0 else index * shape[i] + row
    return index, math.prod(shape[:dims])


def _whole(values: Node, index: Node, size: int) -> Node:
    """For each of `values` the sum of those at its place.

    Each place is added up where it comes first. Nothing depends on how many places there are, so
    all steps have one graph.
    """
    count = index.shape[0]
    none = ops.expand(ops.constant(count, index.dtype), (size,))
    first = ops.gather(ops.scatter(none, ops.iota(count), index, 0, "min"), index, 0)
    zeros = ops.expand(ops.constant(0, values.dtype), values.shape)
    return ops.gather(ops.scatter(zeros, values, first, 0, "add"), first, 0)


def widened(dtype: DType, *nodes: Node) -> tuple[Node, ...]:
    """Rows in the dtype of an update."""
    return tuple(to(n, dtype) for n in nodes)
