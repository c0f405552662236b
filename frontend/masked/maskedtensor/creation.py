"""Functions that make masked tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...functions import shapes
from .core import MaskedTensor, guarded, masked

if TYPE_CHECKING:
    from ..._tensor import Tensor

__all__ = ["as_masked_tensor", "masked_tensor"]


def masked_tensor(data: Tensor, mask: Tensor, requires_grad: bool = False) -> MaskedTensor:
    """A masked tensor of copies of `data` and `mask`, which is a leaf."""
    return MaskedTensor(data, mask)._map(shapes.clone).requires_grad_(requires_grad)


def as_masked_tensor(data: Tensor, mask: Tensor) -> MaskedTensor:
    """A masked tensor computed from `data`: gradients reach that, and are zero outside the mask."""
    checked: Any = MaskedTensor(data, mask)
    return masked(guarded(data, mask), checked._mask)  # type: ignore[no-any-return]
