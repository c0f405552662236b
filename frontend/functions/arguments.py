"""Arguments of functions: tensors or numbers, sizes, and `out`."""

from __future__ import annotations

import operator
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.ir import dtype as dtypes
from tilewright.ir import ops
from tilewright.ir.location import at_user_line
from tilewright.ir.node import Node

from .. import recording
from ..recording import Handle, views
from ..recording.compounds import COMPOUND
from .promotion import can_cast


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
    if not isinstance(value, (bool, int, float, complex)):
        raise TypeError(
            f"expected a Tensor or a number, got {type(value).__name__}{at_user_line()}"
        )
    if like is None:
        return recording.wrap(
            ops.constant(value, dtypes.of_scalar(value, recording.default_dtype()))
        )
    token = recording.key_of(value)
    if recording.clock.volatile and token is not None and like._node is not COMPOUND:
        dtype = recording.scalar_dtype(like.dtype, value)
        dtype = dtypes.accumulator(dtype) if wide else dtype
        return recording.of_constant(recording.known_constant(token, value, dtype))
    node = recording.resolve(like)
    key = (as_handle, node, token, type(value), wide)
    found = None if token is None else recording.lookup(key)
    if found is None:
        if node is COMPOUND:
            return as_handle(value, like._elements, wide)
        dtype = recording.scalar_dtype(node.dtype, value)
        dtype = dtypes.accumulator(dtype) if wide else dtype
        found = recording.number((as_handle, node, type(value), wide), value, dtype)
        if token is not None and found.op is not ops.scalar:
            recording.remember(key, found)
    return recording.wrap(found)


def as_first(input: Any, other: Any) -> Any:
    """The first operand of an op that PyTorch has of two numbers, too: then the first is a 0-d
    tensor. TypeError for anything but tensors and numbers."""
    return input if isinstance(input, Handle) or isinstance(other, Handle) else as_handle(input)


def into(out: Any, result: Any, cast: bool = True, apart: Sequence[Any] = ()) -> Any:
    """Write `result` into `out` if one was given. Returns the value that the call returns.

    Several results are written to as many tensors. cast: whether `out` may have another dtype.
    apart: operands with which `out` must have no memory in common.
    """
    if out is None:
        return result
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)) or len(out) != len(result):
            raise TypeError(
                f"argument 'out' must be a tuple of {len(result)} Tensors{at_user_line()}"
            )
        written = [into(each, part, cast, apart) for each, part in zip(out, result)]
        return type(result)(*written) if hasattr(result, "_fields") else tuple(written)
    if not isinstance(out, Handle):
        raise TypeError(f"argument 'out' must be Tensor, not {type(out).__name__}{at_user_line()}")
    if result.requires_grad or (out.requires_grad and recording.is_grad_enabled()):
        raise RuntimeError(
            "functions with out=... arguments don't support automatic differentiation, but one of "
            f"the arguments requires grad.{at_user_line()}"
        )
    if not cast and result.dtype is not out.dtype:
        raise RuntimeError(
            f"Expected out tensor to have dtype {result.dtype}, but got {out.dtype} instead"
            f"{at_user_line()}"
        )
    if not can_cast(result.dtype, out.dtype):
        raise RuntimeError(
            f"result type {result.dtype} can't be cast to the desired output type "
            f"{out.dtype}{at_user_line()}"
        )
    if any(out is each for each in apart):
        raise _shared()
    if out.shape != result.shape:
        if out.numel():
            warnings.warn(
                "An output with one or more elements was resized since it had shape "
                f"{list(out.shape)}, which does not match the required output shape "
                f"{list(result.shape)}. This behavior is deprecated{at_user_line()}",
                stacklevel=3,
            )
        layout = None if out._chain is None else out._chain.layout
        if layout is not None and views.has_overlap(*layout[:2]):
            raise views.overlap_error()
        out.resize_(result.shape)  # ends the epoch: nodes from before are invalid then
    if any(_share(out, each) for each in apart):
        raise _shared()
    return recording.assign(out, recording.resolve(result))


def _shared() -> RuntimeError:
    return RuntimeError(
        "unsupported operation: the input tensor and the written-to tensor refer to the same "
        f"memory. Please clone() the input{at_user_line()}"
    )


def _share(a: Any, b: Any) -> bool:
    """Whether two contiguous tensors have elements in common."""
    if (a if a._storage is None else a._storage) is not (b if b._storage is None else b._storage):
        return False
    starts = [0 if t._chain is None else t._chain.layout[2] for t in (a, b)]
    contiguous = a.is_contiguous() and b.is_contiguous()
    return contiguous and max(starts) < min(s + t.numel() for s, t in zip(starts, (a, b)))


def need_tensor(name: str, value: Any, argument: str = "input", place: int = 1) -> None:
    """TypeError unless an argument of a function, the first one by default, is a tensor."""
    if not isinstance(value, Handle):
        raise TypeError(
            f"{name}(): argument '{argument}' (position {place}) must be Tensor, not "
            f"{type(value).__name__}{at_user_line()}"
        )


def is_whole(value: Any) -> bool:
    """Whether a value is a tensor that stands for one integer."""
    if not isinstance(value, Handle) or value.dim():  # type: ignore[attr-defined]
        return False
    kind: Any = value.dtype  # type: ignore[attr-defined]
    return not kind.is_floating_point and not kind.is_complex


def listed(dims: Any) -> tuple[int, ...]:
    """Dimensions that were given as one whole number, of Python or of NumPy, or as several."""
    if isinstance(dims, int) or hasattr(dims, "__index__"):
        dims = (dims,)
    return tuple(map(operator.index, dims))


def sizes(
    args: Sequence[Any], named: Any = None, name: str = "", what: str = "size"
) -> tuple[int, ...]:
    """Sizes given as separate arguments, or as one sequence, also by keyword.

    TypeError without any: those of a single element are given as (). name, what: the names of the
    function and of its argument.
    """
    if named is None and not args:
        raise TypeError(
            f"{name}() missing 1 required positional argument: {what!r}{at_user_line()}"
        )
    if named is not None:
        if args:
            raise TypeError(f"sizes are given twice: {args} and {named}{at_user_line()}")
        args = (named,)
    several = len(args) == 1 and not isinstance(args[0], int) and hasattr(args[0], "__iter__")
    if several and not is_whole(args[0]):
        args = tuple(args[0])
    return tuple(map(operator.index, args))


def shape_of(name: str, size: Any) -> tuple[int, ...]:
    """Sizes given as one sequence. TypeError for a number."""
    if isinstance(size, int):
        raise TypeError(
            f"{name}(): argument 'size' must be tuple of ints, not {type(size).__name__}"
            f"{at_user_line()}"
        )
    return sizes((size,))
