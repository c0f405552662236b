"""Arguments of functions: tensors or numbers, sizes, and `out`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..recording import Handle
from .promotion import (
    can_cast,
)

if TYPE_CHECKING:
    from .._tensor import Tensor


def truth(x: Node) -> Node:
    """Whether each element is nonzero."""
    return x if x.dtype is dtypes.bool_ else ops.ne(x, ops.constant(0, x.dtype))


def as_handle(value: Any, like: Any = None, wide: bool = False) -> Any:
    """`value` as a tensor: itself, or a number as a 0-d tensor of `like`'s dtype.

    wide: the number becomes float32 where `like` has a half type.
    """
    if isinstance(value, Handle):
        return value
    if isinstance(value, (np.generic, np.ndarray)) and not value.ndim:
        value = value.item()
    if not isinstance(value, (bool, int, float)):
        raise TypeError(
            f"expected a Tensor or a number, got {type(value).__name__}{at_user_line()}"
        )
    if like is None:
        return recording.wrap(
            ops.constant(value, dtypes.of_scalar(value, recording.default_dtype()))
        )
    node = recording.resolve(like)
    key = (as_handle, node, value, type(value), wide)
    exact = recording.is_exact(value)
    found = recording.lookup(key) if exact else None
    if found is None:
        dtype = recording.scalar_dtype(node.dtype, value)
        dtype = dtypes.accumulator(dtype) if wide else dtype
        found = recording.number((as_handle, node, type(value), wide), value, dtype)
        if exact and found.op is not ops.scalar:
            recording.remember(key, found)
    return recording.wrap(found)


def into(out: Tensor | None, result: Any) -> Any:
    """Write `result` into `out` if one was given. Returns the value that the call returns."""
    if out is None:
        return result
    if not can_cast(result.dtype, out.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type "
            f"{out.dtype}{at_user_line()}"
        )
    if out.shape != result.shape:
        out.resize_(result.shape)  # ends the epoch: nodes from before are invalid then
    return recording.assign(out, recording.resolve(result))


def sizes(args: Sequence[Any], named: Any = None) -> tuple[int, ...]:
    """Sizes given as separate arguments, or as one sequence, also by keyword."""
    if named is not None:
        if args:
            raise TypeError(f"sizes are given twice: {args} and {named}{at_user_line()}")
        args = (named,)
    if len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__"):
        args = tuple(args[0])
    return tuple(map(operator.index, args))
