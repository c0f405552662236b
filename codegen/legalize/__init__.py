"""Legalization: the last rewrites of a graph, into ops and layouts a target has kernels for."""

from __future__ import annotations

from .pipeline import legalize

__all__ = ["legalize"]
