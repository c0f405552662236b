"""torch.backends.cudnn: how precisely convolutions are computed on CUDA devices.

There is no cuDNN here. Kernels are deterministic, and nothing is measured while a program runs. So
the switches for that can be set and read, but change no result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from ..settings import precision

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False


class _Switches(ModuleType):
    """allow_tf32: whether convolutions of float32 may be rounded to TF32, 10 bits of a fraction."""

    @property
    def allow_tf32(self) -> bool:
        return precision.get_convolutions_tf32()

    @allow_tf32.setter
    def allow_tf32(self, allowed: bool) -> None:
        precision.set_convolutions_tf32(bool(allowed))


_module = sys.modules[__name__]
_module.__class__ = _Switches


def is_available() -> bool:
    """False: convolutions are kernels of our own."""
    return False


def version() -> None:
    """None: there is no cuDNN."""


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Set the switches inside the block, and reset them after it."""
    wanted = {
        "enabled": enabled,
        "benchmark": benchmark,
        "benchmark_limit": benchmark_limit,
        "deterministic": deterministic,
        "allow_tf32": allow_tf32,
    }
    before = {name: getattr(_module, name) for name in wanted}
    try:
        for name, value in wanted.items():
            setattr(_module, name, value)
        yield
    finally:
        for name, value in before.items():
            setattr(_module, name, value)
