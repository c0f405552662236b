"""torch.backends.mps: Apple's GPUs, for which there are no kernels here."""

from __future__ import annotations


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False


def is_macos_or_newer(major: int, minor: int) -> bool:
    """Whether this is macOS of that version or a later one, with such a GPU."""
    return False


def is_macos13_or_newer(minor: int = 0) -> bool:
    return False
