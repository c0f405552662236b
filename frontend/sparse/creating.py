"""Makes sparse tensors from parts that users give, and from dense tensors."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

from .. import layouts
from ..functions import creation, from_data
from ..recording import Handle, named_dtype
from . import structure
from .blocks import LAYOUTS, blocked
from .tensors import (
    compressed,
    coo,
    coo_at,
    kind_of,
    to_compressed,
)

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from ..types import DeviceLike

MATRICES = {layouts.sparse_csr: True, layouts.sparse_csc: False}


def _whole(data: Any, dtype: Any, device: Any) -> Any:
    """Positions as a tensor of a whole-number dtype."""
    made = from_data.as_tensor(data)
    if made.dtype.is_complex or made.dtype is dtypes.bool_:
        raise RuntimeError(
            f"expected indices of an integer dtype, got {made.dtype}{at_user_line()}"
        )
    return made.detach().to(device=device, dtype=dtype)


def _elements(values: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """The elements as a tensor: a view of one that is given, so that gradients go on to it."""
    made = values if isinstance(values, Handle) else from_data.tensor(values, dtype=dtype)
    made = made.to(device=device, dtype=named_dtype(dtype, made.dtype))
    if requires_grad:
        return made.detach()
    return made.view_as(made) if made.requires_grad else made


def _placed(values: Any, device: Any, *others: Any) -> Any:
    """The device of a new tensor: as given, or that of the values."""
    if device is not None:
        return device
    given = next((t for t in (values, *others) if isinstance(t, Handle)), None)
    return None if given is None else given.device


def sparse_coo_tensor(
    indices: Any = None,
    values: Any = None,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
    is_coalesced: bool | None = None,
) -> Any:
    """A sparse tensor with `values` [nnz, ...] at positions `indices` [sparse dimensions, nnz].

    Without `size` it is the smallest that holds all positions. sparse_coo_tensor(size) has no
    elements. A position may come several times: its value is the sum then. Gradients go to
    `values`, unless `requires_grad` makes the new tensor a leaf. Positions are always checked:
    RuntimeError where they don't fit the size.
    """
    if values is None:
        sizes = tuple(map(int, indices if size is None else size))
        none = creation.zeros(0, dtype=dtype, device=device)
        made = coo_at(np.empty((len(sizes), 0), np.int64), none, sizes)
        return made.requires_grad_(requires_grad)
    where = _placed(values, device, indices)
    elements = _elements(values, dtype, where, requires_grad)
    at = _whole(indices, dtypes.int64, where)
    if at.dim() != 2:
        raise RuntimeError(
            f"indices must be sparse_dim x nnz, but got: {list(at.shape)}{at_user_line()}"
        )
    if elements.dim() == 0:
        elements = elements.reshape(1)
    if elements.shape[0] != at.shape[1]:
        raise RuntimeError(
            f"indices and values must have same nnz, but got nnz from indices: {at.shape[1]}, nnz "
            f"from values: {elements.shape[0]}{at_user_line()}"
        )
    own = np.asarray(at._array())
    dims = own.shape[0]
    low = own.min(1, initial=0)
    if (low < 0).any():
        bad = int((low < 0).argmax())
        raise RuntimeError(f"found negative index {low[bad]} for dim {bad}{at_user_line()}")
    high = own.max(1, initial=-1)
    if size is None:
        sizes = (*(int(n) + 1 for n in high), *elements.shape[1:])
    else:
        sizes = tuple(map(int, size))
        _check_sizes(sizes, dims, elements, high)
    alone = is_coalesced is None and own.shape[1] < 2
    made = coo(at, elements, sizes, alone or bool(is_coalesced))
    if is_coalesced and check_invariants and not structure.is_merged(own, sizes[:dims]):
        raise RuntimeError(
            "cannot set is_coalesced to true if indices correspond to uncoalesced COO tensor"
            f"{at_user_line()}"
        )
    return made.requires_grad_() if requires_grad else made


def _check_sizes(sizes: tuple[int, ...], dims: int, elements: Any, high: np.ndarray) -> None:
    dense = elements.dim() - 1
    if len(sizes) != dims + dense:
        raise RuntimeError(
            f"'len(size) == sparse_dim + dense_dim' is not satisfied: len(size) = {len(sizes)}, "
            f"sparse_dim = {dims}, dense_dim = {dense}{at_user_line()}"
        )
    for i, (n, most) in enumerate(zip(sizes, high)):
        if most >= n:
            raise RuntimeError(
                f"size is inconsistent with indices: for dim {i}, size is {n} but found index "
                f"{most}{at_user_line()}"
            )
    if sizes[dims:] != tuple(elements.shape[1:]):
        raise RuntimeError(
            f"values has incorrect size, expected {[elements.shape[0], *sizes[dims:]]}, got "
            f"{list(elements.shape)}{at_user_line()}"
        )


def _sparse_coo_tensor_unsafe(*args: Any, **options: Any) -> Any:
    """As `sparse_coo_tensor`."""
    return sparse_coo_tensor(*args, **options)


def sparse_compressed_tensor(
    compressed_indices: Any,
    plain_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    *,
    dtype: DType | None = None,
    layout: Any = None,
    device: DeviceLike | None = None,
    pin_memory: bool = False,
    requires_grad: bool = False,
    check_invariants: bool | None = None,
) -> Any:
    """A matrix of layout torch.sparse_csr or torch.sparse_csc: its rows (columns) one after
    another, from compressed_indices[i] to compressed_indices[i + 1] of `values` [nnz, *dense], in
    the columns (rows) `plain_indices` [nnz]. The same of blocks, values [nnz, *block, *dense], for
    torch.sparse_bsr and torch.sparse_bsc.

    Sizes of a batch in front of all three make a batch of matrices, with nnz elements each.
    Positions are always checked. NotImplementedError for batches of matrices of blocks.
    """
    if layout not in MATRICES and layout not in LAYOUTS:
        raise RuntimeError(
            "sparse_compressed_tensor expected sparse compressed tensor layout but got "
            f"{layout}{at_user_line()}"
        )
    of_blocks = layout in LAYOUTS
    by_rows = LAYOUTS[layout] if of_blocks else MATRICES[layout]
    where = _placed(values, device, compressed_indices, plain_indices)
    elements = _elements(values, dtype, where, requires_grad)
    kinds = [from_data.as_tensor(x).dtype for x in (compressed_indices, plain_indices)]
    kind = dtypes.int32 if kinds[0] is kinds[1] is dtypes.int32 else dtypes.int64
    pointers, minor = (_whole(x, kind, where) for x in (compressed_indices, plain_indices))
    if pointers.dim() > 1 and of_blocks:
        raise NotImplementedError(
            f"{layout}: batches of matrices are not implemented; use one tensor for each matrix"
            f"{at_user_line()}"
        )
    sizes = _checked(by_rows, of_blocks, pointers, minor, elements, size)
    make = blocked if of_blocks else compressed
    made: Any = make(by_rows, pointers, minor, elements, sizes)
    return made.requires_grad_() if requires_grad else made


def _checked(
    by_rows: bool, of_blocks: bool, pointers: Any, minor: Any, elements: Any, size: Any
) -> Any:
    """The size of a matrix, after checks of its parts."""
    outer, inner = ("crow", "col") if by_rows else ("ccol", "row")
    lines = "rows" if by_rows else "columns"
    dims = pointers.dim() - 1
    if dims < 0:
        raise RuntimeError(
            f"{outer}_indices must have dimensionality >= 1 but got 0{at_user_line()}"
        )
    if minor.dim() != pointers.dim():
        raise RuntimeError(
            f"{outer}_indices and {inner}_indices dimensionalities must be equal but got "
            f"{pointers.dim()} and {minor.dim()}, respectively{at_user_line()}"
        )
    base = 2 if of_blocks else 0
    if elements.dim() <= dims + base:
        raise RuntimeError(
            "values must have dimensionality > sum of batch and block dimensionalities "
            f"(={dims} + {base}) but got {elements.dim()}{at_user_line()}"
        )
    shape = tuple(map(int, elements.shape))
    batch, nnz, rest = tuple(pointers.shape[:-1]), shape[dims], shape[dims + 1 + base :]
    block = shape[1:3] if of_blocks else (1, 1)
    where, other = np.asarray(pointers._array()), np.asarray(minor._array())
    sizes: tuple[int, ...]
    if size is None:
        inner_size = int(other.max(initial=-1)) + 1
        pair = (where.shape[-1] - 1, inner_size)
        pair = pair if by_rows else pair[::-1]
        sizes = (*batch, pair[0] * block[0], pair[1] * block[1], *rest)
    else:
        sizes = tuple(map(int, size))
        if len(sizes) != dims + 2 + len(rest):
            raise RuntimeError(
                "tensor dimensionality must be sum of batch, base, and dense dimensionalities "
                f"(={dims} + 2 + {len(rest)}) but got {len(sizes)}{at_user_line()}"
            )
    if not batch == other.shape[:-1] == shape[:dims] == sizes[:dims]:
        raise RuntimeError(
            f"all batch dimensions of {outer}_indices (={list(batch)}), {inner}_indices "
            f"(={list(other.shape[:-1])}), and values (={list(shape[:dims])}) must be equal to "
            f"tensor batch dimensions (={list(sizes[:dims])}){at_user_line()}"
        )
    _need(sizes[dims + 2 :] == rest, "`values.shape[batch_dim + 1:] == size[batch_dim + 2:]`")
    matrix = sizes[dims : dims + 2]
    for i, (n, side) in enumerate(zip(matrix, block)):
        if side == 0 or n % side:
            raise RuntimeError(
                f"tensor shape[{i}] (={n}) must be divisible with blocksize[{i}] (={side}) as "
                f"defined by values shape{at_user_line()}"
            )
    grid = [n // side for n, side in zip(matrix, block)]
    count, limit = grid if by_rows else grid[::-1]
    if where.shape[-1] != count + 1:
        raise RuntimeError(
            f"{outer}_indices.shape[-1] must be equal to the number of {lines} + 1 (={count + 1}), "
            f"but got {where.shape[-1]}{at_user_line()}"
        )
    if other.shape[-1] != nnz:
        raise RuntimeError(
            f"{inner}_indices.shape[-1] must be equal to nnz (={nnz}) as defined by "
            f"values.shape[{dims}], but got {other.shape[-1]}{at_user_line()}"
        )
    _need(bool((where[..., 0] == 0).all()), f"`{outer}_indices[..., 0] == 0`")
    _need(bool((where[..., -1] == nnz).all()), f"`{outer}_indices[..., -1] == nnz`")
    steps, short = np.diff(where), "ncols" if by_rows else "nrows"
    _need(bool((steps >= 0).all() and (steps <= limit).all()),
          f"`0 <= {outer}_indices[..., 1:] - {outer}_indices[..., :-1] <= {short}`")  # fmt: skip
    inside = not other.size or (other.min() >= 0 and other.max() < limit)
    _need(bool(inside), f"`0 <= {inner}_indices < {short}`")
    rising = (np.diff(other) > 0) | (np.diff(structure.rows_of(where)) > 0)
    _need(bool(rising.all()),
          f"`{inner}_indices[..., {outer}_indices[..., i - 1]:{outer}_indices[..., i]] for all i = "
          f"1, ..., {'nrows' if by_rows else 'ncols'} are sorted and distinct along the last "
          "dimension values`")  # fmt: skip
    return sizes


def _need(holds: bool, what: str) -> None:
    if not holds:
        raise RuntimeError(f"{what} is not satisfied.{at_user_line()}")


def sparse_csr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """A matrix of compressed rows; see `sparse_compressed_tensor`."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_csr, **options
    )


def sparse_csc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """A matrix of compressed columns; see `sparse_compressed_tensor`."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_csc, **options
    )


def sparse_bsr_tensor(
    crow_indices: Any,
    col_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """A matrix of rows of blocks, values [nnz, *block]; see `sparse_compressed_tensor`."""
    return sparse_compressed_tensor(
        crow_indices, col_indices, values, size, layout=layouts.sparse_bsr, **options
    )


def sparse_bsc_tensor(
    ccol_indices: Any,
    row_indices: Any,
    values: Any,
    size: Sequence[int] | None = None,
    **options: Any,
) -> Any:
    """A matrix of columns of blocks, values [nnz, *block]; see `sparse_compressed_tensor`."""
    return sparse_compressed_tensor(
        ccol_indices, row_indices, values, size, layout=layouts.sparse_bsc, **options
    )


def empty(layout: Any, size: Sequence[int], dtype: Any, device: Any, requires_grad: bool) -> Any:
    """A tensor of a sparse layout without elements."""
    made = sparse_coo_tensor(tuple(size), dtype=dtype, device=device)
    if layout is not layouts.sparse_coo:
        if layout not in MATRICES:
            raise RuntimeError(
                "zeros_sparse_compressed expected sparse compressed (non-block) tensor layout but "
                f"got {kind_of(layout)}{at_user_line()}"
            )
        made = to_compressed(made, MATRICES[layout])
    return made.requires_grad_(requires_grad)


class check_sparse_tensor_invariants:
    """A switch of PyTorch's, as a context or a decorator. Positions are always checked here."""

    _enabled = False

    def __init__(self, enable: bool = True):
        self.state = enable
        self._before: bool | None = None

    @staticmethod
    def is_enabled() -> bool:
        return check_sparse_tensor_invariants._enabled

    @staticmethod
    def enable() -> None:
        check_sparse_tensor_invariants._enabled = True

    @staticmethod
    def disable() -> None:
        check_sparse_tensor_invariants._enabled = False

    def __enter__(self) -> None:
        if self._before is not None:
            raise RuntimeError(
                "This context manager instance is already activated. Use a different context "
                "manager instance for context nesting."
            )
        self._before = self.is_enabled()
        check_sparse_tensor_invariants._enabled = self.state

    def __exit__(self, *exc: object) -> None:
        assert self._before is not None
        check_sparse_tensor_invariants._enabled, self._before = self._before, None

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def wrapped(*args: Any, **options: Any) -> Any:
            with type(self)(self.state):
                return function(*args, **options)

        return wrapped
