"""torch.nested: sequences of different lengths as one tensor (layout torch.jagged).

A nested tensor is made of dense tensors: all rows, one after another, and the offsets of the
sequences (`tensors.py`). What it does in a call of torch is told by rules, a file for each family
(`recording/compounds.py` tells how a call finds them).
"""

from __future__ import annotations

from . import lines, moves, pointwise, products  # noqa: F401  (their rules)
from .creating import (
    as_nested_tensor,
    masked_select,
    narrow,
    nested_tensor,
    nested_tensor_from_jagged,
    to_padded_tensor,
)

__all__ = [
    "as_nested_tensor",
    "masked_select",
    "narrow",
    "nested_tensor",
    "nested_tensor_from_jagged",
    "to_padded_tensor",
]
