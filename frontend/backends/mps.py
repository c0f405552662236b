"""torch.backends.mps: Apple's GPUs, for which there are no kernels here."""

from __future__ import annotations


def is_available() -> bool:
    return False


def is_built() -> bool:
    return False
