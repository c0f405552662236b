"""The device `interpret`: Triton's interpreter runs the kernels, for tests without a GPU."""

from __future__ import annotations

from .device import InterpretDevice

__all__ = ["InterpretDevice"]
