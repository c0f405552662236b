"""torch.cuda.nvtx: names of parts of a program, for a profiler's timeline.

NVIDIA's library of markers gets them where it is installed; otherwise they go nowhere. Work is
deferred, so a range holds what was launched in it and not what was recorded.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("libnvToolsExt.so.1", "libnvToolsExt.so")


@functools.cache
def _library() -> Any:
    """NVIDIA's, or None."""
    for name in _NAMES:
        try:
            found = ctypes.CDLL(name)
        except OSError:
            continue
        found.nvtxRangeStartA.restype = ctypes.c_uint64
        found.nvtxRangeEnd.argtypes = (ctypes.c_uint64,)
        return found
    return None


_depth = 0
_numbers = itertools.count(1)


def range_push(msg: str) -> int:
    """Begin a range; the number of those it lies in, counted from 0."""
    global _depth
    if _library() is not None:
        _library().nvtxRangePushA(msg.encode())
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """End the last range that is open; its number."""
    global _depth
    if _library() is not None:
        _library().nvtxRangePop()
    _depth = max(_depth - 1, 0)
    return _depth


def range_start(msg: str) -> int:
    """Begin a range that ends at `range_end` of what is returned, in whatever thread."""
    if _library() is not None:
        return _library().nvtxRangeStartA(msg.encode())
    return next(_numbers)


def range_end(range_id: int) -> None:
    if _library() is not None:
        _library().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    """A point in time."""
    if _library() is not None:
        _library().nvtxMarkA(msg.encode())


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """A range, as a context or a decorator; `msg` is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
