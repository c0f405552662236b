"""Fusion: which nodes share a kernel, and in which order kernels run."""

from __future__ import annotations

from .partition import Group, Partition

__all__ = ["Group", "Partition"]
