"""Parts and rearrangements of sparse tensors. All of them are copies."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line
from tilewright.ir.shape import normalize_axis

from ..functions import gathering, indexing, joining
from ..functions.from_data import beside
from ..nn.functional.linear import _embedding as embedding
from ..recording import Handle, views
from ..recording.compounds import rule
from . import structure
from .tensors import COO, Lines, Sparse, as_coo, coo, coo_at, lines, rows_at


@rule(COO, views.PERMUTE, views.TRANSPOSE, views.T)
def _permuted(t: COO, order: tuple[int, ...]) -> COO:
    if order == tuple(range(t.dim())):
        return t._like(t._elements)
    dims = t.sparse_dim()
    front, back = order[:dims], order[dims:]
    if any(i >= dims for i in front):
        raise RuntimeError(
            "permute(): sparse and dense dimensions can't be exchanged: the order of "
            f"{dims} sparse dimensions is {list(front)}{at_user_line()}"
        )
    elements = t._elements
    if back != tuple(range(dims, t.dim())):
        elements = elements.permute(0, *[i - dims + 1 for i in back])
    sizes = [t._sizes[i] for i in order]
    if front == tuple(range(dims)):
        return coo(t._at, elements, sizes, t._is_merged)
    made = coo(t._at[list(front)], elements, sizes)
    made._is_merged = t._nnz() < 2 and t._is_merged
    return made


@rule(Lines, views.PERMUTE, views.TRANSPOSE, views.T)
def _transposed(t: Lines, order: tuple[int, ...]) -> Any:
    if order == tuple(range(t.dim())):
        return t._like(t._elements)
    dims = len(t._batch)
    batch, rest = tuple(range(dims)), tuple(range(dims + 2, t.dim()))
    if order != (*batch, dims + 1, dims, *rest):
        raise RuntimeError(
            "transpose(): can only exchange the two sparse dimensions of a tensor of layout "
            f"{t.layout}, which has {dims} of a batch and {len(rest)} dense ones, got the order "
            f"{list(order)}{at_user_line()}"
        )
    sizes = [t._sizes[i] for i in order]
    return lines(type(t), not t._by_rows, t._pointers, t._minor, t._turned(), sizes)


@rule(Sparse, views.SELECT, views.SLICE, views.UNBIND, views.SPLIT, views.SPLIT_WITH_SIZES)
def _part(t: Any, starts: Any, stops: Any, steps: Any, kept: Any = None, among: Any = None) -> Any:
    """A slice along each dimension; those that aren't `kept` are dropped."""
    dropped = [] if kept is None else [i for i in range(t.dim()) if i not in kept]
    if isinstance(t, Lines) and t._batch and len(dropped) == 1:
        return _matrix(t, dropped[0], starts[dropped[0]])
    found = as_coo(t)
    for axis, (start, stop, step) in enumerate(zip(starts, stops, steps, strict=True)):
        if axis not in dropped and (start, stop, step) != (0, t.shape[axis], 1):
            found = _narrowed(found, axis, start, stop, step)
    for axis in reversed(dropped):
        found = selected(found, axis, starts[axis])
    return found


def _matrix(t: Lines, axis: int, index: int) -> Any:
    """Of a batch of matrices those at `index` along a dimension of the batch."""
    if axis >= len(t._batch):
        raise RuntimeError(
            "select(): selecting sparse dimensions is not supported for batched sparse compressed "
            f"tensors{at_user_line()}"
        )
    pointers, minor, elements = (
        x.select(axis, index) for x in (t._pointers, t._minor, t._elements)
    )
    sizes = [*t._sizes[:axis], *t._sizes[axis + 1 :]]
    return lines(type(t), t._by_rows, pointers, minor, elements, sizes)


def _kept(t: COO, places: np.ndarray, at: np.ndarray, sizes: Any) -> COO:
    """The elements at `places`, moved to positions `at`."""
    return coo_at(at, rows_at(t._elements, places.astype(np.int64)), sizes, t._is_merged)


def _narrowed(t: COO, axis: int, start: int, stop: int, step: int) -> COO:
    dims, size = t.sparse_dim(), len(range(start, stop, step))
    sizes = [*t._sizes[:axis], size, *t._sizes[axis + 1 :]]
    if axis >= dims:
        part = (*[slice(None)] * (axis - dims + 1), slice(start, stop, step))
        return coo(t._at, t._elements[part], sizes, t._is_merged)
    own = t._positions()
    line = own[axis]
    places = np.flatnonzero((line >= start) & (line < stop) & ((line - start) % step == 0))
    at = own[:, places].copy()
    at[axis] = (at[axis] - start) // step
    return _kept(t, places, at, sizes)


def selected(t: COO, axis: int, index: int) -> Any:
    """Without dimension `axis`, of which `index` is taken: dense if it was the only sparse one."""
    dims = t.sparse_dim()
    sizes = [*t._sizes[:axis], *t._sizes[axis + 1 :]]
    if axis >= dims:
        return coo(t._at, t._elements.select(axis - dims + 1, index), sizes, t._is_merged)
    own = t._positions()
    places = np.flatnonzero(own[axis] == index)
    if dims == 1:
        return rows_at(t._elements, places.astype(np.int64)).sum(0).to(t.dtype)
    return _kept(t, places, np.delete(own[:, places], axis, 0), sizes)


@rule(Sparse, indexing.getitem)
def _item(t: Any, key: Any) -> Any:
    """t[key], for numbers, slices, None and `...`."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if any(isinstance(k, (Handle, list, np.ndarray, bool)) for k in keys):
        raise NotImplementedError(
            f"tensors of layout {t.layout} take numbers and slices as indices; use index_select"
            f"{at_user_line()}"
        )
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (t.dim() - len(keys) + keys.count(None) + 1)
    if len(keys) - keys.count(None) > t.dim():
        raise IndexError(f"too many indices for tensor of dimension {t.dim()}{at_user_line()}")
    axis, found = 0, t
    for each in keys:
        if each is None:
            found, axis = found.unsqueeze(axis), axis + 1
        elif isinstance(each, slice):
            start, stop, step = each.indices(found.shape[axis])
            if (start, stop, step) != (0, found.shape[axis], 1):
                if step <= 0:
                    raise ValueError(f"step must be greater than zero{at_user_line()}")
                found = _narrowed(as_coo(found), axis, start, max(start, stop), step)
            axis += 1
        else:
            found = found.select(axis, operator.index(each))
    return found


@rule(Sparse, gathering._index_select)
def _index_select(t: Any, dim: int, index: Any) -> Any:
    by = as_coo(t)
    axis, dims = normalize_axis(dim, t.dim()), by.sparse_dim()
    wanted = np.asarray(index._array()).reshape(-1).astype(np.int64)
    size = t.shape[axis]
    if wanted.size and (wanted.min() < 0 or wanted.max() >= size):
        raise IndexError(
            f"index_select(): index out of range: expected 0 <= index < {size}{at_user_line()}"
        )
    sizes = [*t.shape[:axis], wanted.size, *t.shape[axis + 1 :]]
    if axis >= dims:
        elements = gathering.index_select(by._elements, axis - dims + 1, index)
        return coo(by._at, elements, sizes, by._is_merged)
    own = by._positions()
    slot, places = structure.matches(wanted, own[axis], size)
    at = own[:, places].copy()
    at[axis] = slot
    made = coo_at(at, rows_at(by._elements, places), sizes, False)
    made._is_merged = by._is_merged and structure.is_merged(at, sizes[:dims])
    return made


@rule(COO, embedding)
def _embedding(index: Any, weight: Any, *options: Any) -> Any:
    """Rows of a sparse table, at indices in one dimension."""
    if not isinstance(weight, COO) or index.dim() != 1:
        raise NotImplementedError(
            "embedding: expected indices of one dimension for a sparse weight, got shape "
            f"{tuple(index.shape)} and layout {weight.layout}{at_user_line()}"
        )
    return _index_select(weight, 0, index)


def narrow_copy(t: Any, dim: int, start: int, length: int) -> Any:
    """`length` elements of dimension `dim` from `start` on."""
    axis = normalize_axis(dim, t.dim())
    if not 0 <= start <= t.shape[axis] - length or length < 0:
        raise RuntimeError(
            f"start ({start}) + length ({length}) exceeds dimension size ({t.shape[axis]})"
            f"{at_user_line()}"
        )
    return _narrowed(as_coo(t), axis, start, start + length, 1)


def unsqueezed(t: COO, axis: int) -> COO:
    """With a dimension of size 1 before `axis`, sparse if it is in front of a dense one."""
    dims = t.sparse_dim()
    sizes = [*t._sizes[:axis], 1, *t._sizes[axis:]]
    if axis > dims:
        return coo(t._at, t._elements.unsqueeze(axis - dims + 1), sizes, t._is_merged)
    at = joining.cat([t._at[:axis], t._at.new_zeros(1, t._nnz()), t._at[axis:]])
    return coo(at, t._elements, sizes, t._is_merged)


@rule(COO, views.UNSQUEEZE)
def _unsqueeze(t: COO, shape: Any, axes: Any) -> COO:
    return unsqueezed(t, axes[0])


def _need_sparse(name: str, tensors: Sequence[Any]) -> None:
    if not all(isinstance(t, COO) for t in tensors):
        raise NotImplementedError(
            f"{name}: expected tensors of layout torch.sparse_coo only, got "
            f"{[str(t.layout) for t in tensors]}{at_user_line()}"
        )
    if len({t.sparse_dim() for t in tensors}) > 1:
        raise RuntimeError(
            f"{name}: expected as many sparse dimensions in all tensors, got "
            f"{[t.sparse_dim() for t in tensors]}{at_user_line()}"
        )


@rule(Sparse, joining._cat)
def _cat(*args: Any) -> COO:
    *tensors, dim = args
    _need_sparse("cat", tensors)
    first = tensors[0]
    axis, dims = normalize_axis(dim, first.dim()), first.sparse_dim()
    for t in tensors[1:]:
        if any(a != b for i, (a, b) in enumerate(zip(t.shape, first.shape)) if i != axis):
            raise RuntimeError(
                f"cat: sizes of tensors must match except in dimension {axis}, got "
                f"{list(first.shape)} and {list(t.shape)}{at_user_line()}"
            )
    begins = np.cumsum([0, *(t.shape[axis] for t in tensors)]).tolist()
    sizes = [*first.shape[:axis], begins[-1], *first.shape[axis + 1 :]]
    if axis < dims:
        positions = [t._at + _step(t._at, axis, begin) for t, begin in zip(tensors, begins)]
        elements = [t._elements for t in tensors]
    else:
        positions = [t._at for t in tensors]
        elements = [
            _padded(t._elements, axis - dims + 1, begin, begins[-1])
            for t, begin in zip(tensors, begins)
        ]
    return coo(joining.cat(positions, 1), joining.cat(elements), sizes)


def _step(at: Any, axis: int, begin: int) -> Any:
    column = np.zeros((at.shape[0], 1), np.int64)
    column[axis] = begin
    return beside(column, at)


def _padded(elements: Any, axis: int, begin: int, size: int) -> Any:
    """Elements with zeros around them along a dense dimension."""
    shape = list(elements.shape)
    before, after = list(shape), list(shape)
    before[axis], after[axis] = begin, size - begin - shape[axis]
    parts = [elements.new_zeros(before), elements, elements.new_zeros(after)]
    return joining.cat(parts, axis)


@rule(Sparse, joining._stack)
def _stack(*args: Any) -> COO:
    *tensors, dim = args
    _need_sparse("stack", tensors)
    axis = normalize_axis(dim, tensors[0].dim() + 1)
    return _cat(*[unsqueezed(t, axis) for t in tensors], axis)


def spdiags(diagonals: Any, offsets: Any, shape: Any, layout: Any = None) -> Any:
    """A sparse matrix with the rows of `diagonals` [k, n] on its diagonals `offsets` [k]; element
    j of a row goes to column j, as in SciPy's spdiags."""
    shifts = np.asarray(offsets._array()).reshape(-1).astype(np.int64)
    if len(set(shifts.tolist())) != shifts.size:
        raise RuntimeError(f"spdiags(): Offset tensor contains duplicate values{at_user_line()}")
    table = diagonals if diagonals.dim() == 2 else diagonals.unsqueeze(0)
    if table.shape[0] != shifts.size:
        raise RuntimeError(
            f"spdiags(): Number of diagonals ({table.shape[0]}) does not match the number of "
            f"offsets ({shifts.size}){at_user_line()}"
        )
    rows, columns = map(int, shape)
    which, column = np.divmod(np.arange(table.numel()), max(table.shape[1], 1))
    row = column - shifts[which]
    places = np.flatnonzero((row >= 0) & (row < rows) & (column < columns))
    at = np.stack([row[places], column[places]])
    made = coo_at(at, rows_at(table.reshape(-1), places.astype(np.int64)), (rows, columns), False)
    return made if layout is None else made.to_sparse(layout=layout)
