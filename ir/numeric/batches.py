"""Batches of matrices in parts, one for each thread.

LAPACK takes one matrix after another. NumPy lets go of Python's lock meanwhile, so several threads
work on a batch at a time. Each matrix is computed as it would be alone, whatever the parts.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from . import lapack

threads: Callable[[], int] = lambda: os.cpu_count() or 1  # noqa: E731
"""The most threads that work on a batch, which the runtime tells."""
WORTH = 1 << 18
"""The least work of a part, in multiplications: some 100 µs, a few times what a thread's start and
end take."""
LARGEST = 1024
"""The size of a matrix from which the library's own threads share its work, if there are fewer
matrices than threads."""

_pool: Any = None


def by_parts(function: Callable[..., Any], *arrays: Any) -> Any:
    """function(*arrays), which gives an array or a tuple of them, for arrays of one batch."""
    batch = arrays[0].shape[:-2]
    count = math.prod(batch)
    size = max(arrays[0].shape[-2:])
    if count * size**3 < WORTH and size < lapack.SMALL:  # the library has one thread for these
        return function(*arrays)
    most = threads()
    if count < most and size >= LARGEST:
        with lapack.threads(most):
            return function(*arrays)
    with lapack.threads(1):
        return _by_parts(min(most, count, count * size**3 // WORTH), function, *arrays)


def _by_parts(parts: int, function: Callable[..., Any], *arrays: Any) -> Any:
    if parts < 2:
        return function(*arrays)
    batch = arrays[0].shape[:-2]
    count = math.prod(batch)
    flat = [x.reshape(count, *x.shape[-2:]) for x in arrays]
    ends = [count * i // parts for i in range(parts + 1)]
    places = [slice(a, b) for a, b in pairwise(ends)]
    waiting = [_threads().submit(function, *[x[place] for x in flat]) for place in places[1:]]
    try:
        found = [function(*[x[places[0]] for x in flat])]
    finally:
        for each in waiting:
            each.exception()  # all have ended before anything is raised
    found += [each.result() for each in waiting]
    if not isinstance(found[0], tuple):
        return _joined(found, batch)
    return tuple(_joined(list(results), batch) for results in zip(*found))


def _joined(results: list[Any], batch: tuple[int, ...]) -> Any:
    whole = np.concatenate(results)
    return whole.reshape(*batch, *whole.shape[1:])


def _threads() -> Any:
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        _pool = ThreadPoolExecutor(max(os.cpu_count() or 1, 2), "tilewright-matrices")
    return _pool


def _forget() -> None:
    """A forked process has none of its parent's threads."""
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
