"""Older names of the functions of torch that ask and set autocast."""

from __future__ import annotations

from tilewright.ir.dtype import DType

from .autocast_mode import (
    get_autocast_dtype,
    is_autocast_enabled,
    set_autocast_dtype,
    set_autocast_enabled,
)


def is_autocast_cpu_enabled() -> bool:
    return is_autocast_enabled("cpu")


def get_autocast_cpu_dtype() -> DType:
    return get_autocast_dtype("cpu")


def get_autocast_gpu_dtype() -> DType:
    return get_autocast_dtype("cuda")


def set_autocast_cpu_enabled(enabled: bool) -> None:
    set_autocast_enabled("cpu", enabled)


def set_autocast_cpu_dtype(dtype: DType) -> None:
    set_autocast_dtype("cpu", dtype)


def set_autocast_gpu_dtype(dtype: DType) -> None:
    set_autocast_dtype("cuda", dtype)


_nesting = 0  # the blocks of autocast that a program counts by itself


def autocast_increment_nesting() -> int:
    """Count one more block of autocast. Nothing here depends on the number."""
    global _nesting
    _nesting += 1
    return _nesting


def autocast_decrement_nesting() -> int:
    """Count one block of autocast less."""
    global _nesting
    _nesting -= 1
    return _nesting
