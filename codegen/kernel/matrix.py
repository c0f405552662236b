"""Operands and results of contractions that are matrices in memory, of which hardware can copy
whole tiles."""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.ir.dtype import FLOAT8, DType, bfloat16

from . import index as ix
from .digits import digits
from .index import Axis, Index
from .ir import Buffer, Dot, Load, Store, Value
from .roles import Roles

ALIGNMENT = 16  # bytes, of addresses and of the distance of rows


@dataclass(frozen=True, slots=True)
class Matrix:
    """A matrix in memory. rows, columns: the role of its dimensions in the contraction, m, n or k.
    stride: elements from row to row. apart: rows from the matrix of one group to that of the next,
    if each has its own; otherwise 0."""

    buffer: Buffer
    rows: str
    columns: str
    stride: int
    apart: int = 0


def matrices(dot: Dot, role: Roles, side: str) -> tuple[Matrix, ...] | None:
    """The operand that has `side` (m or n) as a dimension, or each of its digits. None unless it is
    a matrix in memory, in the type it is multiplied in, with rows at multiples of 16 bytes."""
    factor = dot.a if side == "m" else dot.b
    parts = digits(factor) or (factor,)
    found = (matrix(v, dot.input_dtype if v is factor else bfloat16, role, side) for v in parts)
    out = tuple(each for each in found if each is not None)
    return out if len(out) == len(parts) else None


def matrix(value: Value, kind: DType, role: Roles, side: str) -> Matrix | None:
    """An operand of type `kind`, or one of its digits, as such a matrix."""
    if not isinstance(value, Load) or value.buffer.dtype is not kind:
        return None
    offset, dtype = value.offset, value.buffer.dtype
    if dtype in FLOAT8 or not offset.is_affine or offset.const:
        return None  # a kernel sees float8 as bits, and so would a tile
    axes = {"m": role.m, "n": role.n, "k": role.k}
    steps = {name: _step(offset, axes[name]) for name in (side, "k")}
    groups = {role.group} if role.group is not None and role.has_segments_of_rows else set[Axis]()
    if offset.axes() - {*axes[side], *axes["k"], *groups}:
        return None
    group = sum(offset.coefficient(axis) for axis in groups)
    for rows, columns in ((side, "k"), ("k", side)):
        stride = steps[rows]
        if steps[columns] != 1 or not stride or stride * dtype.itemsize % ALIGNMENT:
            continue
        if group % stride == 0:
            return Matrix(value.buffer, rows, columns, stride, group // stride)
    return None


def stored(store: Store, role: Roles) -> Matrix | None:
    """The matrix that a store fills, a row for each m and a column for each n; None unless it is
    one in memory, with rows at multiples of 16 bytes."""
    offset, dtype = store.offset, store.buffer.dtype
    if store.mode is not None or not offset.is_affine or offset.const:
        return None
    if dtype in FLOAT8 or not dtype.is_floating_point or offset.axes() - {*role.m, *role.n}:
        return None
    stride = _step(offset, role.m)
    if _step(offset, role.n) != 1 or not stride or stride * dtype.itemsize % ALIGNMENT:
        return None
    return Matrix(store.buffer, "m", "n", stride)


@dataclass(frozen=True, slots=True)
class Head:
    """The queries, keys or values of one head, as a part of a matrix in memory.

    row, column: where the part begins; they vary with the batch. stride: elements of a row of the
    matrix, which has this many `rows`.
    """

    buffer: Buffer
    row: Index
    column: Index
    rows: int
    stride: int


def head(value: Value, side: Axis, width: Axis) -> Head | None:
    """An operand of attention with rows along `side` and columns along `width`. None unless it is a
    matrix in memory with rows at multiples of 16 bytes."""
    if not isinstance(value, Load) or not value.offset.is_affine:
        return None
    offset = value.offset
    stride = offset.coefficient(side)
    if stride <= 0 or stride * value.buffer.dtype.itemsize % ALIGNMENT:
        return None
    row, column = ix.floordiv(offset, stride), ix.mod(offset, stride)
    lone = row.coefficient(side) == column.coefficient(width) == 1
    if not (lone and row.is_affine and column.is_affine) or width in row.axes():
        return None
    rows = row.bounds()[1] + 1
    return Head(value.buffer, row - ix.of(side), column - ix.of(width), rows, stride)


def _step(offset: Index, axes: tuple[Axis, ...]) -> int:
    """The distance of neighbours along `axes` taken as one axis; 0 if it varies."""
    if not axes:
        return 0
    step = expected = offset.coefficient(axes[-1])
    for axis in reversed(axes):
        if offset.coefficient(axis) != expected:
            return 0
        expected *= axis.extent
    return step
