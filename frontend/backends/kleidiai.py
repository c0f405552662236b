"""torch.backends.kleidiai: Arm's kernels, not available here."""

from __future__ import annotations

from .absent import is_available as is_available
