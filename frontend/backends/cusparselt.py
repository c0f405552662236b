"""torch.backends.cusparselt: cuSPARSELt, not available here."""

from __future__ import annotations

from .absent import is_available as is_available


def version() -> int | None:
    return None


def get_max_alg_id() -> int | None:
    """The number of its last algorithm."""
    return None
