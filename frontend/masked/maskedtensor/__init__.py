"""torch.masked.maskedtensor: tensors of which a mask says where an element is."""

from __future__ import annotations

from . import rules as rules
from .core import MaskedTensor, is_masked_tensor
from .creation import as_masked_tensor, masked_tensor

__all__ = ["MaskedTensor", "as_masked_tensor", "is_masked_tensor", "masked_tensor"]
