"""Functions of Python on one element after another, written in place: for the CPU, and slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.ir.dtype import BOOL, FLOAT
from tilewright.ir.location import at_user_line

from .call import public
from .from_data import from_numpy

if TYPE_CHECKING:
    from .._tensor import Tensor


def _apply(name: str, tensor: Any, others: tuple[Any, ...], function: Any) -> Any:
    if not callable(function):
        raise TypeError(f"{type(function).__name__!r} object is not callable{at_user_line()}")
    for each in (tensor, *others):
        if each.requires_grad:
            raise RuntimeError(
                f"Can't call {name}() on Variable that requires grad. Use var.detach().{name}() "
                f"instead.{at_user_line()}"
            )
        if each.dtype is not tensor.dtype:
            raise TypeError(
                f"{name}: expected tensors of {tensor.dtype}, got {each.dtype}{at_user_line()}"
            )
    if not tensor.device.type == "cpu":
        raise TypeError(f"{name} is only implemented on CPU tensors{at_user_line()}")
    operands = [tensor, *(each.expand(tensor.shape) for each in others)]
    elements = zip(*(each.flatten().tolist() for each in operands), strict=True)
    found = [function(*each) for each in elements]
    if tensor.dtype.category < FLOAT:
        found = [_whole(value, tensor.dtype.category == BOOL) for value in found]
    wide = tensor.dtype.np if tensor.dtype.category != FLOAT else np.float64
    return tensor.copy_(from_numpy(np.array(found, wide).reshape(tuple(tensor.shape))))


def _whole(value: Any, is_bool: bool) -> Any:
    """What an element without fractions becomes of a number."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"{type(value).__name__!r} object cannot be interpreted as an integer")
    return bool(value) if is_bool else int(value)


@public("apply_", function=False)
def apply_(input: Tensor, callable: Callable[[Any], Any]) -> Tensor:
    """Each element x becomes callable(x). The tensor must not require a gradient."""
    return _apply("apply_", input, (), callable)


@public("map_", function=False)
def map_(input: Tensor, other: Tensor, callable: Callable[[Any, Any], Any]) -> Tensor:
    """Each element x becomes callable(x, y), with y of `other`, which is expanded."""
    return _apply("map_", input, (other,), callable)


@public("map2_", function=False)
def map2_(input: Tensor, x: Tensor, y: Tensor, callable: Callable[[Any, Any, Any], Any]) -> Tensor:
    """As `map_`, of two other tensors."""
    return _apply("map2_", input, (x, y), callable)
