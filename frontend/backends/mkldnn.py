"""torch.backends.mkldnn: oneDNN, not available here."""

from __future__ import annotations

from .absent import flags_of
from .absent import is_available as is_available

enabled = True
deterministic = False
allow_tf32 = True

flags = flags_of(__name__)
