"""torch.utils._triton: whether programs may launch kernels in Triton of their own."""

from __future__ import annotations

from importlib.util import find_spec

from .. import cuda

__all__ = ["has_triton", "has_triton_package"]


def has_triton_package() -> bool:
    """Whether Triton is installed."""
    return find_spec("triton") is not None


def has_triton() -> bool:
    """Whether Triton is installed, with a GPU to launch its kernels on."""
    return has_triton_package() and cuda.is_available()
