"""How many threads compute."""

from __future__ import annotations

__all__ = [
    "get_num_interop_threads",
    "get_num_threads",
    "set_num_interop_threads",
    "set_num_threads",
]


def get_num_threads() -> int:
    """Threads that native kernels, products and batches of matrices run on."""
    from tilewright.runtime.native import pool

    return pool.num_threads()


def set_num_threads(int: int) -> None:
    """Runs native kernels, NumPy's products, and batches of matrices, on so many threads. The
    results of native kernels don't depend on it. Of the libraries behind NumPy, OpenBLAS and MKL
    are known; what another one takes for a product is up to it."""
    from tilewright.ir.numeric import blas
    from tilewright.runtime.native import pool

    pool.set_num_threads(int)
    blas.set_threads(int)


_interop: int | None = None


def get_num_interop_threads() -> int:
    """What `set_num_interop_threads` was told, else the number of cores."""
    from tilewright.runtime.native import pool

    return pool.cores() if _interop is None else _interop


def set_num_interop_threads(int: int) -> None:
    """Kept for programs that set it, which may be done once: no two kernels run side by side, each
    has all threads."""
    global _interop
    if int < 1:
        raise RuntimeError("set_num_interop_threads expects a positive integer")
    if _interop is not None:
        raise RuntimeError(
            "cannot set the number of interop threads: set_num_interop_threads was called before"
        )
    _interop = int
