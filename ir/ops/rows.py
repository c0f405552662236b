"""Rows of a table, whose gradient names the rows that it has.

The cotangent of a table that rows are taken of is zero in all other rows. `take_rows` gives it as
a `sum_rows`, which is a sparse gradient to those who look at the record, as
`frontend/autograd/rows.py` does, and a dense tensor to all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtype import int64
from ..location import at_user_line
from ..node import Node
from ..op import Aval, Kind, Op
from ..shape import Size
from .gather import gather, scatter
from .generate import constant
from .movement import expand, reshape


def _take_infer(table: Node, index: Node) -> Aval:
    _need_positions("take_rows", index)
    return Size((*index.shape, *table.shape[1:])), table.dtype


def _need_positions(name: str, index: Node) -> None:
    if index.dtype is not int64:
        raise IndexError(f"{name}: expected int64 indices, got {index.dtype}{at_user_line()}")


def _take_vjp(g: Node, out: Node, table: Node, index: Node) -> tuple[Node, None]:
    width = table.shape[1:]
    count = index.shape.numel()
    return sum_rows(reshape(g, (count, *width)), reshape(index, (count,)), table.shape[0]), None


take_rows = Op(
    "take_rows",
    Kind.COMPOSITE,
    _take_infer,
    vjp=_take_vjp,
    numpy=lambda table, index: table[index],
    decompose=lambda table, index: gather(table, index, 0),
    aten="index_select",
)
"""take_rows(table[n, ...], index): table[index]."""


def _sum_infer(rows: Node, index: Node, count: int) -> Aval:
    _need_positions("sum_rows", index)
    if index.rank != 1 or rows.shape[:1] != index.shape:
        raise RuntimeError(
            f"sum_rows: expected rows [k, ...] and an index [k], got {tuple(rows.shape)} and "
            f"{tuple(index.shape)}{at_user_line()}"
        )
    return Size((count, *rows.shape[1:])), rows.dtype


def _sum_numpy(rows: Any, index: Any, count: int) -> Any:
    out = np.zeros((count, *rows.shape[1:]), rows.dtype)
    np.add.at(out, index, rows)
    return out


def _sum(rows: Node, index: Node, count: int) -> Node:
    zeros = expand(constant(0, rows.dtype), (count, *rows.shape[1:]))
    return scatter(zeros, rows, index, 0, "add")


sum_rows = Op(
    "sum_rows",
    Kind.COMPOSITE,
    _sum_infer,
    params=("count",),
    vjp=lambda g, out, rows, index, count: (gather(g, index, 0), None),
    numpy=_sum_numpy,
    decompose=_sum,
)
"""sum_rows(rows[k, ...], index[k], count): zeros [count, ...], to which each row is added at its
index."""
