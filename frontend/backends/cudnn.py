"""torch.backends.cudnn: kept for who asks. Convolutions are our own kernels: their schedules come
from the cost model and the tuner, results are the same bits on every run, and float32 is rounded to
TF32 where `torch.backends.cuda.matmul.allow_tf32` lets products be."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

enabled = True
benchmark = False
benchmark_limit = 10
deterministic = False
allow_tf32 = True


def is_available() -> bool:
    """False: the library isn't used."""
    return False


def version() -> None:
    """None, as where the library is not installed."""


@contextmanager
def flags(
    enabled: bool = False,
    benchmark: bool = False,
    benchmark_limit: int = 10,
    deterministic: bool = False,
    allow_tf32: bool = True,
) -> Iterator[None]:
    """Other switches inside the block."""
    given = {name: value for name, value in locals().items()}
    before = {name: globals()[name] for name in given}
    globals().update(given)
    try:
        yield
    finally:
        globals().update(before)
