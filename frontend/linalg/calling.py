"""Calls of matrix routines: checks of the operands, and `out`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node
from tilewright.ir.shape import broadcast

from .. import recording
from ..functions.arguments import into
from .catching import settle

if TYPE_CHECKING:
    from .._tensor import Tensor


def kind_name(x: Node) -> str:
    """PyTorch's name of a dtype in its errors."""
    return x.dtype.kind


def checked(build: Callable[..., Any], *args: Any) -> Any:
    """As `record_fallible`, but its error is raised here: by such a call a program finds out
    whether a matrix has a factor, and goes on with another one."""
    found = recording.record_fallible(build, *args)
    settle()
    return found


def need_matrices(name: str, x: Node, letter: str = "A") -> None:
    """RuntimeError unless `x` has rows and columns."""
    if x.rank < 2:
        raise RuntimeError(
            f"{name}: The input tensor {letter} must have at least 2 dimensions.{at_user_line()}"
        )


def need_square(name: str, x: Node, letter: str = "A") -> None:
    """RuntimeError unless `x` is a batch of square matrices."""
    need_matrices(name, x, letter)
    rows, columns = x.shape[-2:]
    if rows != columns:
        raise RuntimeError(
            f"{name}: {letter} must be batches of square matrices, but they are {rows} by "
            f"{columns} matrices{at_user_line()}"
        )


def need_float(name: str, x: Node) -> None:
    """RuntimeError unless `x` is of a floating point dtype."""
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        raise RuntimeError(
            f"{name}: Expected a floating point or complex tensor as input. Got {kind_name(x)}"
            f"{at_user_line()}"
        )


def is_lapacks(dtype: dtypes.DType) -> bool:
    """Whether LAPACK has routines for a dtype: float32, float64, and complex numbers of these."""
    return dtype.is_complex or (dtype.is_floating_point and dtype not in dtypes.NARROW)


def need_wide(routine: str, x: Node) -> None:
    """NotImplementedError unless `x` is of a dtype that LAPACK has."""
    if not is_lapacks(x.dtype):
        raise NotImplementedError(
            f"\"{routine}\" not implemented for '{kind_name(x)}'{at_user_line()}"
        )


def need_precise(name: str, x: Node) -> None:
    """RuntimeError for dtypes of fewer than 32 bits."""
    if x.dtype in dtypes.NARROW:
        raise RuntimeError(
            f"{name}: Low precision dtypes not supported. Got {kind_name(x)}{at_user_line()}"
        )


def need_same_dtype(name: str, a: Node, b: Node, names: str = "A and B") -> None:
    if a.dtype is not b.dtype:
        first, second = names.split(" and ")
        raise RuntimeError(
            f"{name}: Expected {names} to have the same dtype, but found {first} of type "
            f"{kind_name(a)} and {second} of type {kind_name(b)} instead{at_user_line()}"
        )


def is_vector(a: Node, b: Node) -> bool:
    """Whether the right side of an equation is a batch of vectors."""
    return b.rank == 1 or (a.rank - 1 == b.rank and b.shape == a.shape[:-1])


def in_one_batch(a: Node, b: Node) -> tuple[Node, Node]:
    """Two batches of matrices, broadcast to one."""
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    return (
        ops.expand(a, (*batch, *a.shape[-2:])),
        ops.expand(b, (*batch, *b.shape[-2:])),
    )


def as_columns(b: Node) -> Node:
    """A batch of matrices as one that has all their columns: for equations with one matrix."""
    order = (b.rank - 2, *range(b.rank - 2), b.rank - 1)
    count = math.prod(b.shape[:-2]) * b.shape[-1]
    return ops.reshape(ops.permute(b, order), (b.shape[-2], count))


def from_columns(x: Node, shape: Sequence[int]) -> Node:
    """The batch of matrices of `shape` whose columns `x` has."""
    *batch, rows, columns = shape
    split = ops.reshape(x, (rows, *batch, columns))
    return ops.permute(split, (*range(1, len(batch) + 1), 0, len(batch) + 1))


def all_into(out: Sequence[Tensor] | None, results: Any) -> Any:
    """Write results, a named tuple, into tensors if there are some."""
    if out is None:
        return results
    if len(out) != len(results):
        raise TypeError(f"expected {len(results)} tensors as out, got {len(out)}{at_user_line()}")
    return type(results)(*[into(o, r) for o, r in zip(out, results, strict=True)])
