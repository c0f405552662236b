"""Rows added to rows of a table, as in the gradient of an embedding."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tilewright.codegen.llvm import rows, sparse
from tilewright.ir import ops
from tilewright.ir.dtype import DType, float32, float64, int32, int64
from tilewright.ir.node import Node
from tilewright.ir.numeric.positions import are_inside

from . import linking

_DTYPES = {np.dtype(np.float32): float32, np.dtype(np.float64): float64}


def add(table: Any, values: Any, at: Any) -> None:
    """table[at[i]] += values[i], in the order of i.

    table: [size, width], contiguous. values: [rows, width], of its dtype, float32 or float64.
    at: int64 [rows], in range.
    """
    native = _native(_DTYPES[table.dtype])
    if native is not None:
        arrays = table, np.ascontiguousarray(values), np.ascontiguousarray(at)
        native(arrays, values.shape)
        return
    targets = list(table)
    for i, row in zip(at.tolist(), values, strict=True):
        np.add(targets[i], row, targets[i])


class Scaled(NamedTuple):
    """A scatter whose values are rows of a table by factors, or a sum of rows without factors, and
    the nodes of which it is made."""

    result: Node
    product: Node
    gather: Node
    factors: Node | None = None

    @property
    def operands(self) -> tuple[Node, ...]:
        """base, table, sources, factors, positions; of a sum table, sources."""
        if self.factors is None:
            return self.gather.operands
        (base, _, positions), (table, sources) = self.result.operands, self.gather.operands
        if self.is_vector and all(map(_is_widened, (sources, positions))):
            (sources,), (positions,) = sources.operands, positions.operands
        return base, table, sources, self.factors, positions

    @property
    def is_vector(self) -> bool:
        """Whether the rows have one element each."""
        return self.result.shape[-1] == 1

    def form(self) -> Callable[..., Any]:
        """The form of the result over these operands."""
        if self.factors is None:
            return _bags_form(self.result)
        positions = self.operands[-1]
        if self.is_vector and positions.dtype is self.operands[2].dtype:
            native = _times_vector(self.result.dtype, positions.dtype)
            if native is not None:
                return _vector_form(self.result, native)
        return _scaled_form(self.result)


def _is_widened(index: Node) -> bool:
    """Whether an index is made of int32, which a product with a vector reads as they are."""
    return index.op is ops.cast and index.operands[0].dtype is int32


def scaled(node: Node) -> Scaled | None:
    """A scatter as the product of a sparse matrix by a dense one; None if it is none."""
    if node.attrs != (0, "add") or len(node.operands) != 3 or node.dtype not in (float32, float64):
        return None
    product = node.operands[1]
    if product.op is not ops.mul or product.rank != 2 or 0 in product.shape:
        return None
    for gather, spread in (product.operands, product.operands[::-1]):
        factors = spread
        while factors.op is ops.expand_op:
            factors = factors.operands[0]
        is_column = tuple(factors.shape) == (product.shape[0], 1)
        is_rows = gather.op is ops.gather and len(gather.operands) == 2 and gather.attrs == (0,)
        fits = is_rows and gather.operands[0].rank == 2 and gather.operands[1].rank == 1
        if fits and is_column and _native(node.dtype, True) is not None:
            return Scaled(node, product, gather, factors)
    return None


def bags(node: Node) -> Scaled | None:
    """A sum over axis 1 of the rows of a table at positions[bags, size]; None if it is none."""
    (gather,) = node.operands
    if node.attrs != ((1,),) or gather.op is not ops.gather or gather.attrs != (0,):
        return None
    ranks = [o.rank for o in gather.operands]
    if ranks != [2, 2] or 0 in gather.shape or node.dtype not in (float32, float64):
        return None
    return None if _native(node.dtype, True) is None else Scaled(node, gather, gather)


def _bags_form(node: Node) -> Callable[..., Any]:
    native, np_dtype = _native(node.dtype, True), node.dtype.np
    assert native is not None
    run = native

    def form(table: Any, sources: Any) -> Any:
        if not are_inside(sources, len(table)):
            raise IndexError("a position is out of range")
        count, size = sources.shape
        out = np.zeros((count, 1, table.shape[1]), np_dtype)
        factors = np.ones(count * size, np_dtype)
        table, sources = (np.ascontiguousarray(a) for a in (table, sources))
        positions = np.repeat(np.arange(count), size)
        run((out, table, positions, sources, factors), (count * size, table.shape[1]))
        return out

    return form


def _scaled_form(node: Node) -> Callable[..., Any]:
    """The form of a scatter that is `scaled`, over its operands."""
    native, np_dtype = _native(node.dtype, True), node.dtype.np
    assert native is not None
    run = native

    def form(base: Any, table: Any, sources: Any, factors: Any, positions: Any) -> Any:
        out = np.array(base, np_dtype, order="C")
        if not are_inside(sources, len(table)) or not are_inside(positions, len(out)):
            raise IndexError("a position is out of range")
        given = (table, positions, sources, factors)
        table, positions, sources, factors = (np.ascontiguousarray(a) for a in given)
        run((out, table, positions, sources, factors), (len(positions), out.shape[1]))
        return out

    return form


def _vector_form(node: Node, run: Callable[..., Any]) -> Callable[..., Any]:
    """As `_scaled_form` for rows of one element."""
    np_dtype = node.dtype.np

    def form(base: Any, table: Any, sources: Any, factors: Any, positions: Any) -> Any:
        out, flag = np.array(base, np_dtype, order="C"), np.zeros(1, np.int64)
        given = [np.ascontiguousarray(a) for a in (table, positions, sources, factors)]
        run((out, *given, flag), (len(positions), len(out), len(table)))
        if flag[0]:
            raise IndexError("a position is out of range")
        return out

    return form


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for dtype in (float32, float64):
        for is_scaled in (False, True):
            yield _name(dtype, is_scaled), rows.text(dtype, is_scaled)
        for index in (int32, int64):
            yield _vector_name(dtype, index), sparse.text(dtype, index)


def _name(dtype: DType, is_scaled: bool) -> str:
    return f"rows {'scaled and ' if is_scaled else ''}added {dtype.name}"


def adding(dtype: DType) -> Callable[..., Any] | None:
    """The native function that adds rows of a table by factors to rows: of (sums, table, positions,
    sources, factors), all contiguous, and (rows, width). None if there is none."""
    return _native(dtype, True)


@functools.cache
def _native(dtype: DType, is_scaled: bool = False) -> Callable[..., Any] | None:
    code = linking.linked(_name(dtype, is_scaled), lambda: rows.text(dtype, is_scaled))
    buffers = rows.SCALED if is_scaled else rows.BUFFERS
    return None if code is None else linking.function(code, (*buffers, *rows.NUMBERS), len(buffers))


def _vector_name(dtype: DType, index: DType) -> str:
    return f"sparse {dtype.name} at {index.name} times vector"


@functools.cache
def _times_vector(dtype: DType, index: DType) -> Callable[..., Any] | None:
    if index not in (int32, int64):
        return None
    code = linking.linked(_vector_name(dtype, index), lambda: sparse.text(dtype, index))
    return None if code is None else linking.function(code, sparse.WORDS, len(sparse.BUFFERS))
