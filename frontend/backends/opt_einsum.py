"""torch.backends.opt_einsum: opt_einsum, not available here."""

from __future__ import annotations

from .absent import flags_of
from .absent import is_available as is_available

enabled = False
strategy: str | None = None

flags = flags_of(__name__)
