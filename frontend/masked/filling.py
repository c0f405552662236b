"""What stands for an element that a mask leaves out: the value that changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilewright.ir import dtype as dtypes
from tilewright.ir.location import at_user_line

if TYPE_CHECKING:
    from .._tensor import Tensor


def filled(input: Any, mask: Tensor | None, value: Any, dtype: Any = None) -> Any:
    """`input`, cast to `dtype`, with `value` where `mask` doesn't hold."""
    x = input if dtype is None else input.to(dtype)
    if mask is None:
        return x
    return x.masked_fill(~broadcast(input, mask), value)


def broadcast(input: Any, mask: Any) -> Any:
    """The mask in the shape of `input`."""
    if mask.dtype is not dtypes.bool_:
        raise TypeError(f"expected mask dtype to be Bool but got {mask.dtype}{at_user_line()}")
    return mask.expand(input.shape) if mask.dim() <= input.dim() else mask
