"""The values of tensors as arrays that travel, and back."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.ir.location import at_user_line

from .. import recording
from ..exchange.arrays import array_of
from ..functions import from_data


def checked(t: Any, name: str) -> Any:
    """`t`, if it is a tensor; else TypeError."""
    if not isinstance(t, recording.Handle):
        raise TypeError(
            f"Invalid function argument. Expected parameter `{name}` of type torch.Tensor but got "
            f"{type(t)} instead.{at_user_line()}"
        )
    return t


def copied(t: Any) -> np.ndarray:
    """A copy of the values: the tensor may change before they have been sent."""
    return np.array(array_of(t.detach()), order="C")


def blank(t: Any) -> np.ndarray:
    """An array of the shape and dtype of a tensor that is to be overwritten."""
    return np.empty(tuple(t.shape), t.dtype.np)


def write(t: Any, array: np.ndarray) -> Any:
    """Give a tensor the values of an array."""
    with recording.grad_mode(False):
        t.copy_(from_data.beside(np.array(array, order="C"), t))
    return t
