"""Forms of reads and writes at positions that are data, by native code for any sizes.

Where the positions of a dimension follow from the place itself, as those of `torch.gather` do in
all dimensions but one, they are no operand but a stride.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from tilewright.codegen.llvm import indexed
from tilewright.ir import ops
from tilewright.ir.dtype import (
    HALVES,
    DType,
    bool_,
    complex64,
    complex128,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
    uint16,
    uint32,
    uint64,
)
from tilewright.ir.node import Node

from . import linking, maps
from .copies import merged
from .quiet import bare

Form = Callable[..., Any]

DIMENSIONS = indexed.DIMENSIONS

_MOST = 2
"""Indices that are operands, at most."""

_SIZES = (1, 2, 4, 8)
"""The bytes of elements that native code moves."""

_FROM = 64
"""Elements from which a table that lies otherwise is first put in order."""


def gather(node: Node) -> Form | None:
    """The form of a gather at several positions; None if NumPy computes it."""
    x, *indices = node.operands
    (axis,) = node.attrs
    places = _Places(x.shape, indices, axis)
    shape, np_dtype = tuple(node.shape), node.dtype.np
    code = _moving(np_dtype.itemsize, indexed.READ, len(places.data))
    if not places.fit or code is None:
        return None

    reference: Any = node.op.numpy
    attrs = node.attrs

    @bare
    def gather(x: Any, *indices: Any) -> Any:
        out = np.empty(shape, np_dtype)
        if out.size >= x.size > _FROM and x.strides[-1] != x.itemsize:
            x = np.ascontiguousarray(x)  # its lines are read at places far apart otherwise
        strides = [s // x.itemsize for s in x.strides]
        found = places.run(code, out, x, strides, indices)
        if found is None:
            return np.asarray(reference(x, *indices, *attrs), order="C")
        if not found:
            raise IndexError("a position is out of range")
        return out

    return gather


def scatter(node: Node) -> Form | None:
    """The form of a scatter; None if NumPy computes it."""
    dtype, mode = node.dtype, node.attrs[1]
    if mode == indexed.SET:
        return _scatter(node, dtype, mode)
    if dtype in _PARTS:
        return _scatter_of_parts(node, _PARTS[dtype]) if mode == "add" else None
    if dtype is bool_:  # a sum of bools is true where one is
        as_bits, mode = int8, {"add": "max", "mul": "min"}.get(mode, mode)
    else:
        as_bits = _SIGNED.get(dtype, dtype) if mode in ("add", "mul") else dtype
    wide = _WIDER.get(as_bits, as_bits)
    form = _scatter(node, wide, mode)
    if form is None or wide is dtype:
        return form
    inner, widen, narrow = form, maps.converter(dtype, wide), maps.converter(wide, dtype)
    return lambda base, values, *indices: narrow(inner(widen(base), widen(values), *indices))


def _scatter_of_parts(node: Node, part: DType) -> Form | None:
    """The form of a sum of complex numbers, whose parts are a last dimension."""
    form, np_dtype = _scatter(node, part, "add", (2,)), node.dtype.np
    if form is None:
        return None
    inner = form

    def parts(x: Any) -> Any:
        return np.asarray(x, order="C")[..., None].view(part.np)

    return lambda base, values, *indices: inner(parts(base), parts(values), *indices).view(
        np_dtype
    )[..., 0]


def _scatter(node: Node, dtype: DType, mode: str, last: tuple[int, ...] = ()) -> Form | None:
    """The form of a scatter with elements of `dtype` instead of its own, and this mode. last: the
    sizes of further dimensions."""
    base, _, *indices = node.operands
    axis = node.attrs[0]
    places = _Places((*base.shape, *last), indices, axis)
    size, np_dtype = dtype.np.itemsize, dtype.np
    if mode == indexed.SET:
        code = _moving(size, mode, len(places.data))
    else:
        code = _combining(dtype, mode, len(places.data))
    if not places.fit or code is None:
        return None

    reference: Any = node.op.numpy

    @bare
    def scatter(base: Any, values: Any, *indices: Any) -> Any:
        out = np.array(base, np_dtype, order="C")
        strides = [s // size for s in out.strides]
        found = places.run(code, np.asarray(values, order="C"), out, strides, indices)
        if found is None:
            return np.asarray(reference(base, values, *indices, axis, mode), order="C")
        if not found:
            raise IndexError("a position is out of range")
        return out

    return scatter


_KINDS = {
    float32: "float", float64: "double", int8: "i8", int16: "i16", int32: "i32", int64: "i64"
}  # fmt: skip
"""The dtypes that are combined by native code."""

_PARTS = {complex64: float32, complex128: float64}

_SIGNED = {uint8: int8, uint16: int16, uint32: int32, uint64: int64}
"""Dtypes whose sums and products have the same bits."""

_WIDER = {**dict.fromkeys(HALVES, float32), uint8: int16, uint16: int32, uint32: int64}
"""Others are combined as these, and rounded once or cut."""


class _Places:
    """Where the elements of lines[*outer, *placed, *inner] lie in table[*outer, *sizes, *inner].

    data: the indices that are operands, by number. fit: whether native code can tell.
    """

    def __init__(self, table: Sequence[int], indices: Sequence[Node], axis: int):
        self.axis, self.sizes = axis, table[axis : axis + len(indices)]
        self.placed = tuple(np.broadcast_shapes(*[tuple(i.shape) for i in indices]))
        self.outer, self.inner = table[:axis], table[axis + len(indices) :]
        self.shape = (*self.outer, *self.placed, *self.inner)
        self.along: dict[int, int] = {}  # index -> the dimension of `placed` that it counts
        for number, index in enumerate(indices):
            dimension = _counted(index, self.placed)
            if dimension is not None and self.placed[dimension] <= self.sizes[number]:
                self.along[number] = dimension
        self.data = [i for i in range(len(indices)) if i not in self.along]
        self.fit = 0 not in self.shape
        self._numbers: dict[tuple[Any, ...], list[int] | None] = {}

    def run(
        self, code: Any, lines: Any, table: Any, strides: Sequence[int], indices: Sequence[Any]
    ) -> bool | None:
        """Move the elements; whether all positions were in range. None if nothing was moved, as
        there are too many dimensions. strides: of the table."""
        read = [np.asarray(indices[i]) for i in self.data]
        key = (*strides, *[i.strides for i in read])
        if key not in self._numbers:
            if len(self._numbers) >= _REMEMBERED:
                self._numbers.clear()
            self._numbers[key] = self._walk(strides, read)
        numbers = self._numbers[key]
        if numbers is None:
            return None
        flag = np.zeros(1, np.int64)
        code((lines, table, flag, *read), numbers)
        return not flag[0]

    def _walk(self, strides: Sequence[int], read: Sequence[Any]) -> list[int] | None:
        """What the code is told; None if there are too many dimensions."""
        first, count = self.axis, len(self.placed)
        place = [*strides[:first], *[0] * count, *strides[first + len(self.sizes) :]]
        for number, dimension in self.along.items():
            place[first + dimension] += strides[first + number]
        rows = [place]
        for index in read:
            steps = [s // 8 for s in np.broadcast_to(index, self.placed).strides]
            rows.append([0] * first + steps + [0] * len(self.inner))
        sizes, rows = merged(self.shape, rows)
        if len(sizes) > DIMENSIONS:
            return None
        missing = DIMENSIONS - len(sizes)
        numbers = [*[1] * missing, *sizes]
        numbers += [*[0] * missing, *rows[0]]
        for i, row in zip(self.data, rows[1:], strict=True):
            numbers += [*[0] * missing, *row, strides[first + i], self.sizes[i]]
        return numbers


_REMEMBERED = 16
"""The strides of arrays of one shape whose walks are kept."""


def _counted(index: Node, placed: Sequence[int]) -> int | None:
    """The dimension of `placed` whose position an index is; None for other data."""
    while index.op is ops.expand_op:
        index = index.operands[0]
    axes = [i for i, n in enumerate(index.shape) if n != 1]
    if len(axes) != 1:
        return None
    dimension = len(placed) - index.rank + axes[0]
    while index.op is ops.reshape_op:
        index = index.operands[0]
    return dimension if index.op is ops.iota and index.rank == 1 else None


def all_code() -> Iterator[tuple[str, str]]:
    """(name, LLVM IR) of every piece of code, for the pack."""
    for count in range(1, _MOST + 1):
        for size, mode in itertools.product(_SIZES, (indexed.READ, indexed.SET)):
            yield _move_name(size, mode, count), _move_text(size, mode, count)
        for dtype, mode in itertools.product(_KINDS, indexed.MODES):
            yield _combine_name(dtype, mode, count), _combine_text(dtype, mode, count)


def _move_name(size: int, mode: str, count: int) -> str:
    return f"indexed {mode} {size} bytes {count}"


def _move_text(size: int, mode: str, count: int) -> str:
    return indexed.text(f"i{8 * size}", size, mode, count)


def _combine_name(dtype: DType, mode: str, count: int) -> str:
    return f"indexed {mode} {dtype.name} {count}"


def _combine_text(dtype: DType, mode: str, count: int) -> str:
    return indexed.text(_KINDS[dtype], dtype.itemsize, mode, count)


@functools.cache
def _moving(size: int, mode: str, count: int) -> Any:
    if size not in _SIZES or not 1 <= count <= _MOST:
        return None
    code = linking.linked(_move_name(size, mode, count), lambda: _move_text(size, mode, count))
    return None if code is None else _function(code, count)


@functools.cache
def _combining(dtype: DType, mode: str, count: int) -> Any:
    if dtype not in _KINDS or not 1 <= count <= _MOST:
        return None
    name = _combine_name(dtype, mode, count)
    code = linking.linked(name, lambda: _combine_text(dtype, mode, count))
    return None if code is None else _function(code, count)


def _function(code: Any, count: int) -> Any:
    return linking.function(code, indexed.words(count), len(indexed.BUFFERS) + count)
