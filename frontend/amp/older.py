"""Older names of torch.is_autocast_enabled and torch.get_autocast_dtype."""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .autocast_mode import get_autocast_dtype, is_autocast_enabled


def is_autocast_cpu_enabled() -> bool:
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> DType:
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    return get_autocast_dtype("cuda")
