"""Lowering: a fused group of nodes becomes a kernel of values."""

from __future__ import annotations

from .lowering import CannotFuse, Lowering, stored_base

__all__ = ["CannotFuse", "Lowering", "stored_base"]
