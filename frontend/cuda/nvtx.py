"""torch.cuda.nvtx: names of parts of a program, for a profiler's timeline.

NVIDIA's library of markers gets them where it is installed; otherwise they go nowhere. Work is
deferred, so a range shows the work launched in it, not the calls recorded in it.
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
    """NVIDIA's library of markers, or None."""
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
    """Begin a range. Returns the number of ranges around it."""
    global _depth
    if _library() is not None:
        _library().nvtxRangePushA(msg.encode())
    _depth += 1
    return _depth - 1


def range_pop() -> int:
    """End the innermost open range. Returns the number of ranges around it."""
    global _depth
    if _library() is not None:
        _library().nvtxRangePop()
    _depth = max(_depth - 1, 0)
    return _depth


def range_start(msg: str) -> int:
    """Begin a range, and return its handle. `range_end(handle)` ends it, in any thread."""
    if _library() is not None:
        return _library().nvtxRangeStartA(msg.encode())
    return next(_numbers)


def range_end(range_id: int) -> None:
    if _library() is not None:
        _library().nvtxRangeEnd(range_id)


def mark(msg: str) -> None:
    """Mark a point in time."""
    if _library() is not None:
        _library().nvtxMarkA(msg.encode())


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Make a range, as a context or a decorator; `msg` is formatted with the arguments."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
