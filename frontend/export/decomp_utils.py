"""torch.export.decomp_utils: tables of functions that stand for others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CustomDecompTable"]


class CustomDecompTable(dict[Any, Callable[..., Any]]):
    """By functions of torch, functions that call others: for `run_decompositions`. It is empty at
    first, as composites are decomposed when a plan is compiled."""

    def copy(self) -> CustomDecompTable:
        return CustomDecompTable(self)

    def materialize(self) -> dict[Any, Callable[..., Any]]:
        """The entries as a plain dictionary."""
        return dict(self)
