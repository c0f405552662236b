"""The device `interpret`: Triton kernels run by Triton's interpreter, for tests without a GPU."""

from __future__ import annotations

from .device import InterpretDevice

__all__ = ["InterpretDevice"]
