"""torch.utils.dlpack: memory shared with other libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..exchange.arrays import from_dlpack

if TYPE_CHECKING:
    from .._tensor import Tensor

__all__ = ["from_dlpack", "to_dlpack"]


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule of the tensor's memory, which is taken once."""
    return tensor.__dlpack__()
