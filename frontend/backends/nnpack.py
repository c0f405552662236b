"""torch.backends.nnpack: NNPACK, not available here."""

from __future__ import annotations

from .absent import flags_of
from .absent import is_available as is_available

flags = flags_of(__name__)


def set_flags(_enabled: bool) -> tuple[bool]:
    """Accept a switch that changes nothing; returns what it was."""
    return (False,)
