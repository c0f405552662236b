"""The classes of sparse tensors: coordinates (COO), compressed rows or columns (CSR, CSC)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import Size

from .. import layouts, recording
from ..compound import Compound, blank
from ..functions import arguments, creation, from_data, indexing
from ..functions.gathering import index_select
from ..recording import compounds, record
from ..recording.builders import builder
from ..recording.compounds import is_compound
from . import structure
from .printing import text

if TYPE_CHECKING:
    from typing_extensions import Self

    from .._tensor import Tensor


@builder("to_dense", gradient="ToDenseBackward0")
def _spread(values: Node, at: Node, sizes: tuple[int, ...]) -> Node:
    """Zeros of shape `sizes`, to which `values` are added at positions at[dims, count]."""
    dims = at.shape[0]
    if values.dtype is dtypes.bool_:
        return ops.ne(
            _spread(ops.cast(values, dtypes.int32), at, sizes), ops.constant(0, dtypes.int32)
        )
    zeros = ops.expand(ops.constant(0, values.dtype), sizes)
    if not dims:
        return zeros + ops.squeeze(ops.sum(values, (0,)), (0,))
    rows = [ops.reshape(ops.slice_axis(at, 0, i, i + 1), (at.shape[1],)) for i in range(dims)]
    return ops.scatter(zeros, values, *rows, 0, "add")


@builder("values", gradient="IndexAddBackward0")
def _merged(values: Node, place: Node, count: int) -> Node:
    """The sums of the values at each place: [count, ...]."""
    if values.dtype is dtypes.bool_:
        whole = _merged(ops.cast(values, dtypes.int32), place, count)
        return ops.ne(whole, ops.constant(0, dtypes.int32))
    zeros = ops.expand(ops.constant(0, values.dtype), (count, *values.shape[1:]))
    return ops.scatter(zeros, values, place, 0, "add")


@builder("sparse_mask", gradient="SparseMaskBackward0")
def _picked(x: Node, at: Node) -> Node:
    """The elements of a dense tensor at positions at[dims, count]."""
    dims = at.shape[0]
    if not dims:
        return ops.expand(ops.unsqueeze(x, 0), (at.shape[1], *x.shape))
    rows = [ops.reshape(ops.slice_axis(at, 0, i, i + 1), (at.shape[1],)) for i in range(dims)]
    return ops.gather(x, *rows, 0)


def rows_at(values: Any, places: np.ndarray) -> Any:
    """The rows of `values` at places that the host knows."""
    return index_select(values, 0, from_data.beside(places, values))


class Sparse(Compound):
    """What sparse tensors of all layouts share."""

    __slots__ = ("_known",)

    _known: dict[str, Any]  # the structure's parts on the host, with the versions that they are of

    def _on_host(self, name: str, part: Any) -> np.ndarray:
        """A part of the structure as an array, which must not be written to."""
        version, known = self._known.get(name, (None, None))
        if version != recording.version(part):
            version, known = recording.version(part), np.array(part._array())
            self._known[name] = version, known
        return known

    def _coordinates(self) -> COO:
        """This tensor by coordinates, with the same elements in the same order."""
        raise NotImplementedError

    def _nnz(self) -> int:
        """The number of positions with an element."""
        return int(self._elements.shape[0])

    def sparse_dim(self) -> int:
        raise NotImplementedError

    def dense_dim(self) -> int:
        return self._elements.dim() - 1

    _dimV = dense_dim

    @property
    def _dimI(self) -> Callable[[], int]:
        return self.sparse_dim

    def new_zeros(self, *size: Any, **options: Any) -> Any:
        """Zeros in this layout."""
        return super().new_zeros(*size, **{"layout": self.layout, **options})

    new_empty = new_zeros

    def _elements_of(self, gradient: Tensor) -> Any:
        return gradient.sparse_mask(self)._elements

    def type(self, dtype: Any = None, non_blocking: bool = False, **options: Any) -> Any:
        """The name of its type (`torch.sparse.FloatTensor`), or the tensor cast to a dtype."""
        found = super().type(dtype, non_blocking, **options)
        return found.replace("torch.", "torch.sparse.", 1) if isinstance(found, str) else found

    def to_dense(self, dtype: Any = None, *, masked_grad: bool | None = None) -> Tensor:
        """The dense tensor of the same values."""
        if dtype is not None:
            raise RuntimeError(
                f"dtype argument is not supported by sparse_to_dense{at_user_line()}"
            )
        by = self._coordinates()
        return record(_spread, by._elements, by._at, tuple(self._sizes))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return text(self)

    def __getitem__(self, key: Any) -> Any:
        return compounds.apply(indexing.getitem, (self, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError(
            f"tensors of layout {self.layout} can't be written to by an index{at_user_line()}"
        )


class COO(Sparse):
    """Elements [nnz, *dense sizes] at positions int64[sparse dimensions, nnz]. A position may be
    there several times, unless `_is_merged`: its value is their sum then."""

    __slots__ = ("_at", "_is_merged")

    _at: Any
    _is_merged: bool
    is_sparse = True

    @property
    def layout(self) -> layouts.layout:
        return layouts.sparse_coo

    def _positions(self) -> np.ndarray:
        return self._on_host("at", self._at)

    def _near(self) -> Any:
        """The positions, in int32 if these are known: products read no more than them."""
        version, near = self._known.get("near", (None, None))
        return near if version == recording.version(self._at) else self._at

    def _coordinates(self) -> COO:
        return self

    def _sparse_sizes(self) -> tuple[int, ...]:
        return tuple(self._sizes[: self.sparse_dim()])

    def _like(self, elements: Tensor, sizes: Any = None) -> Self:
        made = coo(self._at, elements, self._sizes if sizes is None else sizes, self._is_merged)
        made._known = self._known
        return made  # type: ignore[return-value]

    def _structure(self) -> tuple[Any, ...]:
        return (self._at,)

    def _restructured(self, structure: tuple[Any, ...], elements: Tensor) -> Self:
        return coo(structure[0], elements, self._sizes, self._is_merged)  # type: ignore[return-value]

    def _take(self, other: Any) -> None:
        self._at, self._elements, self._sizes = other._at, other._elements, other._sizes
        self._is_merged, self._known = other._is_merged, other._known

    def _pickled(self) -> tuple[Any, Any]:
        return (self._at, self._elements), (tuple(self._sizes), self._is_merged)

    @classmethod
    def _unpickled(cls, parts: Any, rest: Any) -> Any:
        return coo(*parts, *rest)

    # ---- what it is made of ------------------------------------------------------------------

    def sparse_dim(self) -> int:
        return int(self._at.shape[0])

    def is_coalesced(self) -> bool:
        """Whether positions are sorted, and each is there once."""
        return self._is_merged

    def stride(self, dim: int | None = None) -> Any:
        return (0,) * self.dim() if dim is None else 0

    def fill_(self, value: Any) -> NoReturn:
        raise NotImplementedError(
            f"fill_: not implemented for tensors of layout {self.layout}{at_user_line()}"
        )

    def _coalesced_(self, coalesced: bool) -> Self:
        """Say that positions are, or aren't, sorted and unique."""
        self._is_merged = bool(coalesced)
        return self

    def _indices(self) -> Tensor:
        return self._at  # type: ignore[no-any-return]

    def _values(self) -> Tensor:
        return self._elements.detach()  # type: ignore[no-any-return]

    def indices(self) -> Tensor:
        """The positions [sparse dimensions, nnz] of a coalesced tensor."""
        self._need_merged("indices")
        return self._at  # type: ignore[no-any-return]

    def values(self) -> Tensor:
        """The elements [nnz, *dense sizes] of a coalesced tensor, differentiable."""
        self._need_merged("values")
        return self._elements.view_as(self._elements)  # type: ignore[no-any-return]

    def _need_merged(self, name: str) -> None:
        if not self._is_merged:
            raise RuntimeError(
                f"Cannot get {name} on an uncoalesced tensor, please call .coalesce() first"
                f"{at_user_line()}"
            )

    def crow_indices(self) -> NoReturn:
        _not_this("crow_indices", "row compressed", "Sparse")

    def col_indices(self) -> NoReturn:
        _not_this("col_indices", "row compressed", "Sparse")

    def ccol_indices(self) -> NoReturn:
        _not_this("ccol_indices", "column compressed", "Sparse")

    def row_indices(self) -> NoReturn:
        _not_this("row_indices", "column compressed", "Sparse")

    def coalesce(self) -> COO:
        """This tensor with sorted positions, each of which is there once, with the sum of its
        elements."""
        if self._is_merged:
            return self
        at, sizes = self._positions(), self._sparse_sizes()
        if structure.is_merged(at, sizes):
            made = self._like(self._elements)
            made._is_merged = True
            return made
        whole, place = structure.merged(at, sizes)
        where = from_data.beside(place, self._elements)
        elements = record(_merged, self._elements, where, whole.shape[1])
        return coo_at(whole, elements, self._sizes)

    # ---- changes of the size -----------------------------------------------------------------

    def sparse_resize_(self, size: Sequence[int], sparse_dim: int, dense_dim: int) -> Self:
        """Give it another size, no smaller while it has elements."""
        sizes = tuple(map(int, size))
        self._check_dims(sizes, sparse_dim, dense_dim)
        same = (sparse_dim, dense_dim) == (self.sparse_dim(), self.dense_dim())
        if self._nnz() and not same:
            raise RuntimeError(
                f"changing the number of sparse or dense dimensions of a non-empty sparse tensor "
                f"is not supported{at_user_line()}"
            )
        if self._nnz() and any(n < o for n, o in zip(sizes, self._sizes)):
            raise RuntimeError(
                "shrinking the size of sparse or dense dimensions of a non-empty sparse tensor is "
                f"not supported{at_user_line()}"
            )
        if not self._nnz():
            return self.sparse_resize_and_clear_(sizes, sparse_dim, dense_dim)
        more = [(0, n - o) for n, o in zip(sizes[sparse_dim:], self._sizes[sparse_dim:])]
        elements = self._elements
        if any(extra for _, extra in more):
            bigger = elements.new_zeros((self._nnz(), *sizes[sparse_dim:]))
            bigger[tuple(slice(0, n) for n in elements.shape)] = elements
            elements = bigger
        self._elements, self._sizes = elements, Size(sizes)
        return self

    def sparse_resize_and_clear_(
        self, size: Sequence[int], sparse_dim: int, dense_dim: int
    ) -> Self:
        """Give it another size, and no elements."""
        sizes = tuple(map(int, size))
        self._check_dims(sizes, sparse_dim, dense_dim)
        elements = self._elements.new_zeros((0, *sizes[sparse_dim:]))
        self._take(coo_at(np.empty((sparse_dim, 0), np.int64), elements, sizes))
        return self

    def _check_dims(self, sizes: tuple[int, ...], sparse_dim: int, dense_dim: int) -> None:
        if sparse_dim + dense_dim != len(sizes):
            raise RuntimeError(
                f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(sizes)},"
                f" sparse_dim = {sparse_dim}, dense_dim = {dense_dim}{at_user_line()}"
            )

    def zero_(self) -> Self:
        none = np.empty((self.sparse_dim(), 0), np.int64)
        elements = self._elements.new_zeros((0, *self._elements.shape[1:]))
        return self._become(coo_at(none, elements, self._sizes))


class Lines(Sparse):
    """Rows or columns of a matrix, or of its blocks, one after another: the elements [nnz, ...],
    the column (row) of each, and where each row (column) begins. All parts may have dimensions of
    a batch in front, whose matrices have as many elements each."""

    __slots__ = ("_by_rows", "_minor", "_pointers")

    _by_rows: bool
    _pointers: Any
    _minor: Any

    @property
    def _batch(self) -> tuple[int, ...]:
        """The sizes of the batch."""
        return tuple(self._pointers.shape[:-1])

    def _nnz(self) -> int:
        """The number of positions with an element, of each matrix of a batch."""
        return int(self._minor.shape[-1])

    def _turned(self) -> Any:
        """The elements of the transposed matrix, in the same order."""
        return self._elements

    def _placed(self, sizes: Any) -> COO:
        """The elements by coordinates of their rows and columns."""
        by, elements = self._known.get("coordinates"), self._elements
        if self._batch:
            elements = elements.flatten(0, len(self._batch))
        versions = recording.version(self._pointers), recording.version(self._minor)
        if by is None or by[0] != versions:
            rows = structure.rows_of(self._on_host("pointers", self._pointers))
            at = np.stack([rows, self._on_host("minor", self._minor)]).astype(np.int64)
            at = structure.in_batches(at if self._by_rows else at[::-1])
            made = coo(from_data.beside(at, self._elements), elements, sizes)
            made._is_merged = structure.is_merged(at, made._sparse_sizes())
            near = made._at
            if max(at.shape[1], *made._sparse_sizes()) < 1 << 31:
                near = from_data.beside(at.astype(np.int32), self._elements)
            by = self._known["coordinates"] = versions, made._at, made._is_merged, near
        found = coo(by[1], elements, sizes, by[2])
        found._known["near"] = recording.version(found._at), by[3]
        return found

    def _like(self, elements: Tensor, sizes: Any = None) -> Self:
        sizes = self._sizes if sizes is None else sizes
        made = lines(type(self), self._by_rows, self._pointers, self._minor, elements, sizes)
        made._known = self._known
        return made  # type: ignore[no-any-return]

    def _structure(self) -> tuple[Any, ...]:
        return self._pointers, self._minor

    def _restructured(self, structure: tuple[Any, ...], elements: Tensor) -> Self:
        pointers, minor = structure
        return lines(type(self), self._by_rows, pointers, minor, elements, self._sizes)  # type: ignore[no-any-return]

    def _take(self, other: Any) -> None:
        self._by_rows, self._pointers, self._minor = other._by_rows, other._pointers, other._minor
        self._elements, self._sizes, self._known = other._elements, other._sizes, other._known

    def _pickled(self) -> tuple[Any, Any]:
        return (self._pointers, self._minor, self._elements), (self._by_rows, tuple(self._sizes))

    @classmethod
    def _unpickled(cls, parts: Any, rest: Any) -> Any:
        pointers, minor, elements = parts
        return lines(cls, rest[0], pointers, minor, elements, rest[1])

    def zero_(self) -> Self:
        return self._become(creation.zeros_like(self))

    # ---- what it is made of ------------------------------------------------------------------

    def sparse_dim(self) -> int:
        return 2

    def values(self) -> Tensor:
        """The elements [nnz, ...], differentiable."""
        return self._elements.view_as(self._elements)  # type: ignore[no-any-return]

    def _values(self) -> Tensor:
        return self._elements.detach()  # type: ignore[no-any-return]

    def crow_indices(self) -> Tensor:
        """Where each row begins, and the last one ends: [rows + 1]."""
        return self._pointers if self._by_rows else self._of_rows("crow_indices")

    def col_indices(self) -> Tensor:
        """The column of each element: [nnz]."""
        return self._minor if self._by_rows else self._of_rows("col_indices")

    def ccol_indices(self) -> Tensor:
        """Where each column begins, and the last one ends: [columns + 1]."""
        return self._of_columns("ccol_indices") if self._by_rows else self._pointers

    def row_indices(self) -> Tensor:
        """The row of each element: [nnz]."""
        return self._of_columns("row_indices") if self._by_rows else self._minor

    def _of_rows(self, name: str) -> NoReturn:
        _not_this(name, "row compressed", kind_of(self.layout))

    def _of_columns(self, name: str) -> NoReturn:
        _not_this(name, "column compressed", kind_of(self.layout))

    def _by_coordinates(self, name: str) -> NoReturn:
        _not_this(name, "coordinate", kind_of(self.layout))

    def indices(self) -> NoReturn:
        self._by_coordinates("indices")

    _indices = indices

    def coalesce(self) -> NoReturn:
        self._by_coordinates("coalesce")

    def is_coalesced(self) -> NoReturn:
        self._by_coordinates("is_coalesced")


class Compressed(Lines):
    """Compressed rows (CSR) or columns (CSC) of a matrix, with elements [nnz, *dense sizes]."""

    __slots__ = ()

    @property
    def layout(self) -> layouts.layout:
        return layouts.sparse_csr if self._by_rows else layouts.sparse_csc

    @property
    def is_sparse_csr(self) -> bool:  # type: ignore[override]
        return self._by_rows

    def dense_dim(self) -> int:
        return self._elements.dim() - 1 - len(self._batch)

    _dimV = dense_dim

    def _coordinates(self) -> COO:
        return self._placed(self._sizes)

    # ---- changes of the size -----------------------------------------------------------------

    def resize_(self, *sizes: Any, memory_format: Any = None) -> Self:
        """Give a matrix another size. New rows (columns, if it is by columns) are empty; those that
        are left out leave their elements to the last one."""
        size = arguments.sizes(sizes)
        if self.requires_grad:
            raise RuntimeError(f"cannot resize variables that require grad{at_user_line()}")
        if len(size) != 2 or self._batch or self.dense_dim():
            raise RuntimeError(
                "torch.resize_: Only batched sparse CSR matrices are supported, but got size "
                f"{list(size)}{at_user_line()}"
            )
        (major, minor), at = (size, 1) if self._by_rows else (size[::-1], 0)
        if minor < self._sizes[at]:
            raise RuntimeError(
                f"torch.resize_: Resizing columns of sparse CSR tensors to a smaller value is not "
                f"supported. The original number of columns is {self._sizes[at]} while the "
                f"requested new number of columns is {minor}.{at_user_line()}"
            )
        begins = self._on_host("pointers", self._pointers)
        count = min(self._nnz(), major * minor)
        kept = np.full(major + 1, count, begins.dtype)
        same = min(major, len(begins) - 1)
        kept[:same] = np.minimum(begins[:same], count)
        where = from_data.beside(kept, self._elements)
        elements = self._elements.detach()[:count]
        self._take(compressed(self._by_rows, where, self._minor[:count], elements, size))
        return self

    def _resize_as(self, other: Compressed) -> Self:
        """Give it the size and the places of another one, and as many elements: its own, then
        zeros."""
        if other._by_rows is not self._by_rows:
            got = f"self ({kind_of(self.layout)}) and source ({kind_of(other.layout)})"
            raise RuntimeError(
                "resize_as_sparse_compressed_tensor_: self and src must have the same layout, but "
                f"got: {got}{at_user_line()}"
            )
        elements, own = self._elements.new_zeros(other._elements.shape), self._elements.detach()
        if len(own.shape) == len(elements.shape):
            common = tuple(slice(0, min(pair)) for pair in zip(own.shape, elements.shape))
            elements[common] = own[common]
        parts = other._pointers.clone(), other._minor.clone()
        self._take(compressed(self._by_rows, *parts, elements, other._sizes))
        return self


def kind_of(layout: layouts.layout) -> str:
    """PyTorch's name of a sparse layout in its errors: SparseCsr."""
    return "".join(word.capitalize() for word in str(layout).partition(".")[2].split("_"))


def _not_this(name: str, kind: str, got: str) -> NoReturn:
    raise RuntimeError(f"{name} expected sparse {kind} tensor layout but got {got}{at_user_line()}")


# ---- made of parts that are known to fit --------------------------------------------------------


def coo(at: Any, elements: Any, sizes: Any, is_merged: bool = False) -> COO:
    made: COO = blank(COO, elements, sizes)
    made._at, made._is_merged, made._known = at, is_merged, {}
    return made


def coo_at(at: np.ndarray, elements: Any, sizes: Any, is_merged: bool = True) -> COO:
    """As `coo`, of positions that the host has computed."""
    made = coo(from_data.beside(at.copy(), elements), elements, sizes, is_merged)
    made._known["at"] = recording.version(made._at), at
    return made


def of_rows(rows: Any, index: Any, sizes: Any) -> COO:
    """Rows [k, ...] at positions index[k] of the first dimension."""
    return coo(index.unsqueeze(0), rows, sizes)


def lines(cls: Any, by_rows: bool, pointers: Any, minor: Any, elements: Any, sizes: Any) -> Any:
    made = blank(cls, elements, sizes)
    made._by_rows, made._pointers, made._minor, made._known = by_rows, pointers, minor, {}
    return made


def compressed(by_rows: bool, pointers: Any, minor: Any, elements: Any, sizes: Any) -> Compressed:
    made: Compressed = lines(Compressed, by_rows, pointers, minor, elements, sizes)
    return made


def to_compressed(t: COO, by_rows: bool) -> Compressed:
    """The compressed form of a matrix that is given by coordinates, or of a batch of them."""
    dims = t.sparse_dim() - 2
    if dims < 0:
        raise RuntimeError(
            "Only tensors with two sparse dimensions can be converted to the SparseCsr layout, got "
            f"{t.sparse_dim()}{at_user_line()}"
        )
    whole = t.coalesce()
    at, elements, batch = whole._positions(), whole._elements, tuple(t._sizes[:dims])
    sides = tuple(t._sizes[dims : dims + 2])
    if not by_rows:
        at, sides = at[[*range(dims), dims + 1, dims]], sides[::-1]
        order = np.lexsort(at[::-1])
        at, elements = at[:, order], rows_at(elements, order.astype(np.int64))
    count = math.prod(batch)
    lines = structure.numbers(at[:-1], (*batch, sides[0]))
    where = structure.pointers(lines, count * sides[0])
    minor = np.ascontiguousarray(at[-1])
    if dims:
        begin = where[:: sides[0]] if sides[0] else np.zeros(count + 1, np.int64)
        nnz = minor.size // max(count, 1)
        if (np.diff(begin) != nnz).any():
            raise RuntimeError(
                f"Expect the same number of specified elements per batch.{at_user_line()}"
            )
        own = np.arange(count)[:, None] * sides[0] + np.arange(sides[0] + 1)
        where = (where[own] - begin[:-1, None]).reshape(*batch, -1)
        minor = minor.reshape(*batch, nnz)
        elements = elements.reshape(*batch, nnz, *elements.shape[1:])
    return compressed(
        by_rows, from_data.beside(where, elements), from_data.beside(minor, elements), elements,
        t._sizes,
    )  # fmt: skip


def as_coo(t: Any) -> COO:
    """A sparse tensor of any layout by coordinates."""
    return t._coordinates()  # type: ignore[no-any-return]


def is_sparse(t: Any) -> bool:
    return is_compound(t) and isinstance(t, Sparse)
