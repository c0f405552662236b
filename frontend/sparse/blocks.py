"""Sparse matrices of dense blocks: by rows of blocks (BSR), or by columns of them (BSC).

A matrix of blocks is a sparse matrix, the *grid*, whose elements are blocks. So conversions and
sums are those of a hybrid tensor with two sparse dimensions, and a product is a batch of small
ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size

from .. import layouts
from ..functions import from_data
from ..recording import record
from . import structure
from .tensors import (
    COO,
    Compressed,
    Lines,
    _merged,
    _spread,
    as_coo,
    coo_at,
    kind_of,
    lines,
    to_compressed,
)

if TYPE_CHECKING:
    from .._tensor import Tensor

LAYOUTS = {layouts.sparse_bsr: True, layouts.sparse_bsc: False}
"""The layouts of blocks, and whether they go by rows."""


class Blocked(Lines):
    """Elements [nnz, *block, *dense sizes]; rows and columns are counted in blocks."""

    __slots__ = ()

    @property
    def layout(self) -> layouts.layout:
        return layouts.sparse_bsr if self._by_rows else layouts.sparse_bsc

    @property
    def _block(self) -> tuple[int, int]:
        rows, columns = self._elements.shape[1:3]
        return int(rows), int(columns)

    def dense_dim(self) -> int:
        return self._elements.dim() - 3

    def _turned(self) -> Any:
        return self._elements.transpose(1, 2)

    _dimV = dense_dim

    def _grid(self) -> COO:
        """The matrix of the blocks."""
        return self._placed(_grid_sizes(self._sizes, self._block))

    def _coordinates(self) -> COO:
        grid = self._grid()
        flat = self._elements.reshape(-1, *self._elements.shape[3:])
        by = self._known.get("places")
        if by is None or by[0] is not grid._at:
            rows, columns = (np.arange(n) for n in self._block)
            at = grid._positions()[..., None, None]
            whole = np.broadcast_arrays(
                at[0] * rows.size + rows[:, None], at[1] * columns.size + columns
            )
            places = np.stack([each.reshape(-1) for each in whole])
            is_merged = structure.is_merged(places, self._sizes[:2])
            made = coo_at(places, flat, self._sizes, is_merged)
            by = self._known["places"] = grid._at, made._at, places, is_merged
            return made
        return coo_at(by[2], flat, self._sizes, by[3])

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The dense tensor of the same values."""
        if dtype is not None:
            return super().to_dense(dtype)
        grid = self._grid()
        whole = record(_spread, grid._elements, grid._at, tuple(grid._sizes))
        return whole.transpose(1, 2).reshape(tuple(self._sizes))  # type: ignore[no-any-return]


def _grid_sizes(sizes: Any, block: tuple[int, int]) -> Size:
    return Size((sizes[0] // block[0], sizes[1] // block[1], *block, *sizes[2:]))


def blocked(by_rows: bool, pointers: Any, minor: Any, elements: Any, sizes: Any) -> Blocked:
    made: Blocked = lines(Blocked, by_rows, pointers, minor, elements, sizes)
    return made


def _of_grid(grid: COO, by_rows: bool, sizes: Any) -> Blocked:
    made = to_compressed(grid, by_rows)
    return blocked(by_rows, made._pointers, made._minor, made._elements, sizes)


def in_layout_of(t: Any, found: COO) -> Any:
    """A matrix that is given by coordinates, in the layout of `t`."""
    if isinstance(t, Blocked):
        return _gathered(found, t._block, t._by_rows)
    return to_compressed(found, t._by_rows) if isinstance(t, Compressed) else found


# ---- conversions -------------------------------------------------------------------------------


def checked_block(name: str, sizes: Any, block: Any) -> tuple[int, int]:
    """The size of the blocks of a matrix, as a user gives it."""
    block = tuple(int(n) for n in block)
    if len(block) != 2:
        raise RuntimeError(
            f"{name}: blocksize needs to be a tuple of size 2, but got {len(block)}{at_user_line()}"
        )
    if min(block) <= 0:
        raise RuntimeError(
            f"{name}: blocksize needs to be positive, but got {list(block)}{at_user_line()}"
        )
    if sizes[0] % block[0] or sizes[1] % block[1]:
        raise RuntimeError(
            f"{name}: tensor sparse size ({sizes[0]},{sizes[1]}) must be divisible by given "
            f"blocksize ({block[0]},{block[1]}){at_user_line()}"
        )
    return block


def to_blocked(t: Any, block: tuple[int, int], by_rows: bool) -> Blocked:
    """A sparse matrix by blocks."""
    if not isinstance(t, Blocked):
        return _gathered(as_coo(t), block, by_rows)
    if t._block != block:
        target = kind_of(layouts.sparse_bsr if by_rows else layouts.sparse_bsc)
        raise RuntimeError(
            f"to_sparse_{target[-3:].lower()}: conversion from {kind_of(t.layout)} to {target} "
            f"with blocksize changed from {list(t._block)} to {list(block)} is not supported"
            f"{at_user_line()}"
        )
    return t if t._by_rows is by_rows else _of_grid(t._grid(), by_rows, t._sizes)


def _gathered(t: COO, block: tuple[int, int], by_rows: bool) -> Blocked:
    """The blocks that have elements of a matrix."""
    whole = t.coalesce()
    at, (rows, columns) = whole._positions(), block
    grid_sizes = _grid_sizes(t._sizes, block)
    sides = np.array([[rows], [columns]])
    outer, within = np.divmod(at, sides)
    found, place = structure.merged(outer, grid_sizes[:2])
    place = place * (rows * columns) + within[0] * columns + within[1]
    where = from_data.beside(place, whole._elements)
    flat = record(_merged, whole._elements, where, found.shape[1] * rows * columns)
    elements = flat.reshape(found.shape[1], *block, *flat.shape[1:])
    return _of_grid(coo_at(found, elements, grid_sizes), by_rows, t._sizes)


def dense_to_blocked(
    t: Any, block: tuple[int, int], by_rows: bool, by_coordinates: Callable[[Any, int], COO]
) -> Blocked:
    """A dense matrix by its blocks that are not all zeros. by_coordinates: the conversion of a
    dense tensor with so many sparse dimensions."""
    grid_sizes = _grid_sizes(t.shape, block)
    split = t.reshape(grid_sizes[0], block[0], grid_sizes[1], block[1], *t.shape[2:])
    return _of_grid(by_coordinates(split.transpose(1, 2), 2), by_rows, t.shape)


# ---- calls -------------------------------------------------------------------------------------


def sum_of_blocks(a: Blocked, b: Any, concatenated: Callable[[COO, COO], COO]) -> Blocked:
    """a + b for matrices of blocks of one size. concatenated: the sum by all elements of both."""
    if a._block != b._block:
        raise RuntimeError(
            f"add: expected blocks of one size, got {list(a._block)} and {list(b._block)}"
            f"{at_user_line()}"
        )
    return _of_grid(concatenated(a._grid(), b._grid()), a._by_rows, a._sizes)


def times_dense(t: Blocked, dense: Any) -> Any:
    """A matrix of blocks times a dense matrix: each block times rows, added up."""
    if t.dtype is not dense.dtype:
        raise RuntimeError(
            f"expected m1 and m2 to have the same dtype, but got: {t.dtype} != {dense.dtype}"
            f"{at_user_line()}"
        )
    grid, (rows, columns) = t._grid(), t._block
    width = dense.shape[1]
    own = dense.reshape(-1, columns, width).index_select(0, grid._at[1])
    zeros = dense.new_zeros((t._sizes[0] // rows, rows, width))
    found = zeros.index_add(0, grid._at[0], t._elements @ own)
    return found.reshape(t._sizes[0], width)
