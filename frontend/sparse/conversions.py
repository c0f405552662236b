"""Conversions: from dense tensors, between layouts, and to the positions of another tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import int32, int64
from tilewright.ir.location import at_user_line

from .. import layouts
from ..functions import from_data
from ..functions.arguments import into
from ..functions.call import public
from ..recording import record
from ..recording.compounds import is_compound
from . import blocks, structure
from .creating import MATRICES
from .tensors import (
    COO,
    Compressed,
    Sparse,
    _picked,
    as_coo,
    coo_at,
    kind_of,
    rows_at,
    to_compressed,
)

if TYPE_CHECKING:
    from .._tensor import Tensor


@public("to_sparse", function=False)
def to_sparse(
    self: Tensor,
    sparse_dim: int | None = None,
    *,
    layout: Any = None,
    blocksize: Any = None,
    dense_dim: int | None = None,
) -> Any:
    """The tensor in a sparse layout: by coordinates of its first `sparse_dim` dimensions (all by
    default), or in the layout that is named; `blocksize` is for those of blocks."""
    if (blocksize is not None) != (layout in blocks.LAYOUTS):
        source, target = (_kind(each) for each in (self.layout, layout or layouts.sparse_coo))
        given = "with" if blocksize is not None else "without"
        raise RuntimeError(
            f"to_sparse: conversion from {source} to {target} {given} blocksize argument given is "
            f"not supported{at_user_line()}"
        )
    if layout in (None, layouts.sparse_coo):
        return _by_coordinates(self, sparse_dim)
    if layout in MATRICES:
        return _by_lines(self, MATRICES[layout], dense_dim)
    if layout in blocks.LAYOUTS:
        return _by_blocks(self, blocks.LAYOUTS[layout], blocksize, dense_dim)
    raise RuntimeError(
        f"to_sparse: conversion from {self.layout} to {layout} is not supported{at_user_line()}"
    )


def _by_coordinates(t: Any, sparse_dim: int | None) -> COO:
    if is_compound(t):
        return _to_coordinates(t, sparse_dim)
    dims = t.dim() if sparse_dim is None else int(sparse_dim)
    if not (0 < dims <= t.dim() or dims == t.dim() == 0):
        raise RuntimeError(
            f"sparse_dim argument must be >0 and <={t.dim()}, got {dims}{at_user_line()}"
        )
    filled = np.asarray(t.detach().cpu()._array()) != 0
    if dims < filled.ndim:
        filled = filled.any(axis=tuple(range(dims, filled.ndim)))
    at = (
        np.stack(np.nonzero(filled)).astype(np.int64)
        if dims
        else np.empty((0, int(filled)), np.int64)
    )
    where = from_data.beside(at.copy(), t)
    return coo_at(at, record(_picked, t, where), t.shape)


def _to_coordinates(t: Any, sparse_dim: int | None) -> COO:
    found = as_coo(t)
    if sparse_dim is not None and sparse_dim != found.sparse_dim():
        raise RuntimeError(
            f"to_sparse: conversion from {t.layout} to torch.sparse_coo with sparse_dim argument "
            f"!={found.sparse_dim()} is not supported{at_user_line()}"
        )
    if isinstance(t, blocks.Blocked):
        return found.coalesce()
    return t if found is t else found._like(found._elements.view_as(found._elements))


def _kind(layout: Any) -> str:
    return "Strided" if layout is layouts.strided else kind_of(layout)


def _by_blocks(t: Any, by_rows: bool, blocksize: Any, dense_dim: int | None) -> blocks.Blocked:
    name = f"to_sparse_{'bsr' if by_rows else 'bsc'}"
    is_sparse = isinstance(t, Sparse)
    _need_a_matrix(t, dense_dim)
    block = blocks.checked_block(
        name if is_sparse else name.replace("to", "dense_to", 1), t.shape, blocksize
    )
    if is_sparse:
        return blocks.to_blocked(t, block, by_rows)
    return blocks.dense_to_blocked(t, block, by_rows, _by_coordinates)


def _need_a_matrix(t: Any, dense_dim: int | None, batches: bool = False) -> None:
    """An error unless two dimensions of a tensor are sparse, or will be, or those of `batches`."""
    if isinstance(t, COO) and t.sparse_dim() != 2:
        raise RuntimeError(
            "conversion from Sparse to a compressed layout for input tensors with sparse_dim()!=2 "
            f"is not supported, got {t.sparse_dim()}{at_user_line()}"
        )
    if isinstance(t, Sparse):
        return
    dims = t.dim() - (dense_dim or 0)
    if dims < 2:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-t.dim()}, {t.dim() - 1}], but "
            f"got -2){at_user_line()}"
        )
    if dims > 2 and not batches:
        raise NotImplementedError(
            "conversion to a layout of blocks expects a matrix (batches are not implemented), got "
            f"shape {list(t.shape)}{at_user_line()}"
        )


def _by_lines(t: Any, by_rows: bool, dense_dim: int | None) -> Any:
    if isinstance(t, Compressed) and t._by_rows is by_rows:
        return t
    if isinstance(t, blocks.Blocked):
        target = "SparseCsr" if by_rows else "SparseCsc"
        raise RuntimeError(
            f"sparse_compressed_to_sparse_{target[-3:].lower()}: expected SparseCsr or SparseCsc "
            f"layout but got {kind_of(t.layout)}{at_user_line()}"
        )
    _need_a_matrix(t, dense_dim, True)
    if isinstance(t, Sparse):
        return to_compressed(as_coo(t), by_rows)
    return to_compressed(_by_coordinates(t, t.dim() - (dense_dim or 0)), by_rows)


@public("to_sparse_coo", function=False)
def to_sparse_coo(self: Tensor) -> Any:
    """The tensor by coordinates (COO)."""
    return to_sparse(self)


@public("to_sparse_csr", function=False)
def to_sparse_csr(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix by compressed rows (CSR)."""
    return to_sparse(self, layout=layouts.sparse_csr, dense_dim=dense_dim)


@public("to_sparse_csc", function=False)
def to_sparse_csc(self: Tensor, dense_dim: int | None = None) -> Any:
    """The matrix by compressed columns (CSC)."""
    return to_sparse(self, layout=layouts.sparse_csc, dense_dim=dense_dim)


@public("to_sparse_bsr", function=False)
def to_sparse_bsr(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Any:
    """The matrix by rows of blocks of `blocksize` (BSR): those that are not all zeros. RuntimeError
    if the sizes of the matrix are no multiples of it."""
    return to_sparse(self, layout=layouts.sparse_bsr, blocksize=blocksize, dense_dim=dense_dim)


@public("to_sparse_bsc", function=False)
def to_sparse_bsc(self: Tensor, blocksize: Any, dense_dim: int | None = None) -> Any:
    """The matrix by columns of blocks of `blocksize` (BSC); see `to_sparse_bsr`."""
    return to_sparse(self, layout=layouts.sparse_bsc, blocksize=blocksize, dense_dim=dense_dim)


def _convert_indices_from_coo_to_csr(
    input: Tensor, size: int, *, out_int32: bool = False, out: Tensor | None = None
) -> Tensor:
    """Where each of `size` rows begins among the sorted rows input[n], and where the last one ends:
    [size + 1]."""
    found = structure.pointers(input.detach().cpu().numpy(), size)
    dtype = int32 if out_int32 else int64
    return into(out, from_data.tensor(found, dtype=dtype, device=input.device))


def _convert_indices_from_csr_to_coo(
    crow_indices: Tensor,
    col_indices: Tensor,
    *,
    out_int32: bool = False,
    transpose: bool = False,
    out: Tensor | None = None,
) -> Tensor:
    """The coordinates [2, n] of a matrix by rows: rows and columns, or columns and rows."""
    pair = [
        structure.rows_of(crow_indices.detach().cpu().numpy()),
        col_indices.detach().cpu().numpy(),
    ]
    dtype = int32 if out_int32 else int64
    found = np.stack(pair[::-1] if transpose else pair)
    return into(out, from_data.tensor(found, dtype=dtype, device=col_indices.device))


@public("resize_as_sparse_")
def resize_as_sparse_(input: Any, the_template: Any) -> Any:
    """Give a sparse tensor the size and the numbers of dimensions of another one, compressed ones
    the places, too."""
    pair = (("self", input), ("src", the_template))
    if any(isinstance(t, Compressed) for _, t in pair):
        for name, t in pair:
            if not isinstance(t, Compressed):
                raise RuntimeError(
                    f"resize_as_sparse_compressed_: {name}  expected sparse compressed tensor "
                    f"layout but got {kind_of(t.layout)}{at_user_line()}"
                )
        return input._resize_as(the_template)
    for t in (input, the_template):
        if not isinstance(t, COO):
            raise RuntimeError(
                f"resize_as_sparse_: expected tensors of layout torch.sparse_coo, got {t.layout}"
                f"{at_user_line()}"
            )
    dims = the_template.sparse_dim(), the_template.dense_dim()
    return input.sparse_resize_(the_template.shape, *dims)


@public("sparse_mask", function=False)
def sparse_mask(self: Tensor, mask: Any) -> Any:
    """The elements at the positions of `mask`, a sparse tensor, in its layout."""
    if not isinstance(mask, Sparse):
        raise RuntimeError(
            f"sparse_mask expects a sparse mask, got layout {mask.layout}{at_user_line()}"
        )
    if tuple(self.shape) != tuple(mask.shape):
        raise RuntimeError(
            "sparse_mask(): operands have incompatible sizes; self has size "
            f"{list(self.shape)} but mask has size {list(mask.shape)}{at_user_line()}"
        )
    if not isinstance(self, Sparse):
        by = as_coo(mask)
        return mask._like(record(_picked, self, by._at).reshape(mask._elements.shape))
    own, by = as_coo(self).coalesce(), as_coo(mask)
    sizes = own._sparse_sizes()
    place, exists = structure.found_in(by._positions(), own._positions(), sizes)
    here = np.flatnonzero(exists)
    kept = rows_at(own._elements, place[here])
    zeros = own._elements.new_zeros((by._nnz(), *own._elements.shape[1:]))
    found = zeros.index_add(0, from_data.beside(here, zeros), kept)
    return mask._like(found.reshape(mask._elements.shape))
