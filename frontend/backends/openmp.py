"""torch.backends.openmp: OpenMP, not available here."""

from __future__ import annotations

from .absent import is_available as is_available
