"""torch.backends.quantized: engines for quantized numbers, not available here."""

from __future__ import annotations

engine = "none"
supported_engines = ["none"]
