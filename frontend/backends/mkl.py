"""torch.backends.mkl: Intel's MKL, not available here."""

from __future__ import annotations

from .absent import is_available as is_available

VERBOSE_OFF, VERBOSE_ON = 0, 1
