"""torch.crow_indices_copy and its kin: the parts of sparse tensors as tensors of their own."""

from __future__ import annotations

from typing import Any

__all__ = [
    "ccol_indices_copy",
    "col_indices_copy",
    "crow_indices_copy",
    "indices_copy",
    "row_indices_copy",
    "values_copy",
]


def _copied(name: str) -> Any:
    def call(input: Any) -> Any:
        return getattr(input, name)().clone()

    call.__name__ = call.__qualname__ = f"{name}_copy"
    call.__doc__ = f"A copy of `input.{name}()`."
    return call


ccol_indices_copy, col_indices_copy = map(_copied, ("ccol_indices", "col_indices"))
crow_indices_copy, row_indices_copy = map(_copied, ("crow_indices", "row_indices"))
indices_copy, values_copy = map(_copied, ("indices", "values"))
