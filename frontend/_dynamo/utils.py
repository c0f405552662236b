"""torch._dynamo.utils."""

from __future__ import annotations

import functools
import warnings
from typing import Any

__all__ = ["is_compile_supported", "warn_once"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether torch.compile works for a kind of device."""
    from ..devices import KINDS

    return str(device_type).partition(":")[0] in KINDS


@functools.cache
def warn_once(msg: str, stacklevel: int = 1) -> None:
    """Warn of something the first time that it is said."""
    warnings.warn(msg, stacklevel=stacklevel + 2)
