"""Functions of tensors that return a Python value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.ir.dtype import int64
from tilewright.ir.location import at_user_line
from tilewright.ir.shape import Size, broadcast

from .. import layouts, recording
from ..recording import Handle
from . import elementwise, from_data, shapes
from .arguments import as_handle, need_tensor
from .call import public
from .promotion import can_cast, promote_types, result_dtype
from .spellings import also_named

if TYPE_CHECKING:
    from tilewright.ir.dtype import DType

    from .._tensor import Tensor
    from ..types import Number

public("can_cast", method=False)(can_cast)
public("promote_types", method=False)(promote_types)


@public("is_tensor", method=False)
def is_tensor(obj: Any) -> bool:
    """Whether `obj` is a tensor."""
    return isinstance(obj, Handle)


@public("is_floating_point", method=False)
def is_floating_point(input: Tensor) -> bool:
    """Whether the elements are floating point numbers."""
    return input.is_floating_point()


@public("numel", method=False)
def numel(input: Tensor) -> int:
    """The number of elements."""
    return input.numel()


@public("result_type", method=False)
@also_named(scalar="other", scalar1="tensor", scalar2="other")
def result_type(tensor: Number | Tensor, other: Number | Tensor) -> DType:
    """The dtype of an operation on the two."""
    like = next((each for each in (tensor, other) if isinstance(each, Handle)), None)
    return result_dtype(
        recording.resolve(as_handle(tensor, like)), recording.resolve(as_handle(other, like))
    )


@public("equal")
def equal(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape and elements."""
    need_tensor("equal", other, "other", 2)
    return input.shape == other.shape and bool((input == other).all().item())


@public("allclose")
def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether |input - other| <= atol + rtol * |other| everywhere."""
    return bool(elementwise.isclose(input, other, rtol, atol, equal_nan).all().item())


@public("is_signed")
def is_signed(input: Tensor) -> bool:
    """Whether the dtype has negative numbers."""
    return input.dtype.is_signed


def _has_compatible_shallow_copy_type(input: Tensor, from_: Tensor) -> bool:
    """Whether `input` may take the memory of `from_` for its own: layouts and kinds of device are
    the same."""
    return input.layout is from_.layout and input.device.type == from_.device.type


@public("is_same_size")
def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether two tensors have the same shape."""
    return input.shape == other.shape


@public("is_nonzero")
def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is nonzero."""
    if input.numel() != 1:
        raise RuntimeError(
            "Boolean value of Tensor with "
            + ("no values" if not input.numel() else "more than one value")
            + f" is ambiguous{at_user_line()}"
        )
    return bool(input.item())


@public("is_set_to", function=False)
def is_set_to(input: Tensor, tensor: Tensor) -> bool:
    """Whether both look at the same memory, in the same way."""
    same = (input._storage or input) is (tensor._storage or tensor)
    return same and shapes.layout_of(input) == shapes.layout_of(tensor)


@public("broadcast_shapes", method=False)
def broadcast_shapes(*shapes: int | Sequence[int]) -> Size:
    """The shape to which tensors of these shapes broadcast."""
    return Size(broadcast(*((s,) if isinstance(s, int) else tuple(s) for s in shapes)))


def dim_order(t: Tensor, ambiguity_check: Any) -> tuple[int, ...]:
    """`t.dim_order(ambiguity_check=...)`."""
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    named = all(isinstance(each, layouts.memory_format) for each in formats)
    if not (named if formats else isinstance(ambiguity_check, bool)):
        raise TypeError(
            "The ambiguity_check argument must be a bool or a list of memory formats."
            f"{at_user_line()}"
        )
    strides = t.stride()
    unique = len({*strides}) == t.dim() and 1 not in t.shape
    fits = any(t.is_contiguous(memory_format=each) for each in formats)
    fits = fits or unique or not ambiguity_check
    if not fits:
        raise RuntimeError(
            "The tensor does not have unique dim order, or cannot map to exact one of the "
            f"given memory formats.{at_user_line()}"
        )
    return tuple(sorted(range(t.dim()), key=lambda d: -strides[d]))


def _shape_as_tensor(input: Any) -> Any:
    """The sizes of a tensor, as a tensor."""
    return from_data.tensor(list(input.shape), dtype=int64)
