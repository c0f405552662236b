"""torch._dynamo.utils."""

from __future__ import annotations

from typing import Any

__all__ = ["is_compile_supported"]


def is_compile_supported(device_type: Any) -> bool:
    """Whether torch.compile works for a kind of device."""
    from ..devices import KINDS

    return str(device_type).partition(":")[0] in KINDS
