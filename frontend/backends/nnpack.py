"""torch.backends.nnpack: NNPACK, not available here."""

from __future__ import annotations

from .absent import flags_of
from .absent import is_available as is_available

flags = flags_of(__name__)
