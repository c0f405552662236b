"""The elements of tensors as Python's numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import complex32, is_added
from tilewright.ir.location import at_user_line, warn
from tilewright.ir.numeric.special import cast

from .. import recording
from .arrays import array_of, element_of

if TYPE_CHECKING:
    from .._tensor import Tensor


def of(t: Tensor) -> Any:
    """The one element of a tensor."""
    _, dtype, device = t._typed()
    if device == "meta":
        raise RuntimeError(f"Tensor.item() cannot be called on meta tensors{at_user_line()}")
    array = array_of(t)
    if array.size != 1:
        raise RuntimeError(
            f"a Tensor with {array.size} elements cannot be converted to Scalar{at_user_line()}"
        )
    if dtype is complex32:
        array = cast(array, np.complex64)
    return float(array.reshape(())) if is_added(array.dtype) else array.item()


def nested(t: Tensor) -> Any:
    """The elements of a tensor as nested lists."""
    array = t._array()
    if t.dtype is complex32:
        array = cast(array, np.complex64)
    if is_added(array.dtype):
        array = array.astype(np.float32)
    return array.tolist()


def real(t: Tensor, name: str) -> Any:
    """The one element of a tensor; RuntimeError if it has an imaginary part. name: what it is
    converted to."""
    if t.requires_grad and recording.is_grad_enabled():
        warn(
            "Converting a tensor with requires_grad=True to a scalar may lead to unexpected "
            "behavior.\nConsider using tensor.detach() first.",
            once=True,
        )
    value = element_of(t)
    if value is None:
        value = (t if t.shape.numel() == 1 else only(t)).item()
    if value.__class__ is complex:
        if value.imag:
            raise RuntimeError(
                f"value cannot be converted to type {name} without overflow{at_user_line()}"
            )
        return value.real
    return value


def only(t: Tensor) -> Tensor:
    """The tensor, if it has one element."""
    if t.numel() != 1:
        raise ValueError(
            "only one element tensors can be converted to Python scalars, got one of shape "
            f"{tuple(t.shape)}{at_user_line()}"
        )
    return t
