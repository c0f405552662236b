"""The memory formats of convolutions' weights."""

from __future__ import annotations

from typing import Any, TypeVar

from ..conv import Conv2d, Conv3d, ConvTranspose2d, ConvTranspose3d
from ..module import Module

T = TypeVar("T", bound=Module)

__all__ = ["convert_conv2d_weight_memory_format", "convert_conv3d_weight_memory_format"]


def _convert(module: T, kinds: tuple[type, ...], memory_format: Any) -> T:
    for each in module.modules():
        if isinstance(each, kinds):
            weight: Any = each.weight
            weight.data = weight.detach().contiguous(memory_format=memory_format)
    return module


def convert_conv2d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Bring the weights of two-dimensional convolutions into a memory format."""
    return _convert(module, (Conv2d, ConvTranspose2d), memory_format)


def convert_conv3d_weight_memory_format(module: T, memory_format: Any) -> T:
    """Bring the weights of three-dimensional convolutions into a memory format."""
    return _convert(module, (Conv3d, ConvTranspose3d), memory_format)
