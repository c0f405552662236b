"""torch.cuda.profiler: where NVIDIA's profilers begin and end to collect."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager

from tilewright.ir.location import at_user_line

__all__ = ["CudaError", "check_error", "cudart", "profile", "start", "stop"]


def _call(name: str) -> None:
    """Call a function of CUDA's driver that takes nothing."""
    path = ctypes.util.find_library("cuda")
    if path is None:
        raise RuntimeError(f"torch.cuda.profiler: there is no CUDA driver here{at_user_line()}")
    code = getattr(ctypes.CDLL(path), name)()
    if code:
        raise RuntimeError(f"torch.cuda.profiler: {name} failed with code {code}{at_user_line()}")


class CudaError(RuntimeError):
    """A code of CUDA's runtime that stands for an error."""

    def __init__(self, code: int):
        super().__init__(f"CUDA error ({code})")


def check_error(res: int) -> None:
    """Raise a CudaError for a code of CUDA's runtime that isn't 0."""
    if res:
        raise CudaError(int(res))


class _Runtime:
    """Those functions of CUDA's runtime that PyTorch exports and that exist here. They return a
    code."""

    @staticmethod
    def cudaProfilerStart() -> int:
        start()
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:
        stop()
        return 0


def cudart() -> _Runtime:
    """CUDA's runtime: where profilers begin and end to collect."""
    return _Runtime()


def start() -> None:
    """Let a profiler that waits for it collect from now on."""
    _call("cuProfilerStart")


def stop() -> None:
    """Let the profiler collect no more."""
    _call("cuProfilerStop")


@contextmanager
def profile() -> Iterator[None]:
    """The block that a profiler collects."""
    start()
    try:
        yield
    finally:
        stop()
