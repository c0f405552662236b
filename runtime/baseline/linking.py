"""Native code of this tier by its name: from the pack, or compiled now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.codegen.target import LLVM

from .. import devices

if TYPE_CHECKING:
    from ..native.jit import Linked
    from ..native.pack import Layout


def has_code() -> bool:
    """Whether the engine of the CPU runs native code."""
    device: Any = devices.get("cpu")
    found: bool = device.target.emitter == LLVM.emitter
    return found


def linked(name: str, text: Callable[[], str]) -> Linked | None:
    """A module with a function `kernel`, from the pack or compiled now; None if the engine of the
    CPU runs no native code."""
    if not has_code():
        return None
    from ..native import host, jit

    ready = jit.packed(name)
    if ready is not None or not host.compiles():
        return ready
    return jit.link(text() + host.machine().attributes, "kernel")


def ready(name: str) -> Linked | None:
    """A module of the pack; None if it isn't there, or the CPU's engine runs no native code."""
    if not has_code():
        return None
    from ..native import jit

    return jit.packed(name)


def packed(name: str) -> tuple[Layout, Linked] | None:
    """A kernel of the pack; None if it isn't there, or the CPU's engine runs no native code."""
    code = ready(name)
    if code is None:
        return None
    from ..native import pack

    layout = pack.layout(name)
    return None if layout is None else (layout, code)


def function(
    code: Linked, words: Sequence[str], buffers: int, chunks: int = 1, errors: int = 0
) -> Callable[..., Any]:
    """A module's function of (buffers, numbers), for argument words of that order. All cores share
    several chunks. errors: the number of last words that are none of its numbers, but tell what is
    wrong: the function returns None if they stay 0."""
    from ..native.calls import bound
    from ..native.pool import pool

    last = len(words) - errors
    numbers = [[i, buffers + i, 2] for i in range(last - buffers)]
    template = np.zeros(len(words), np.int64)
    made: Callable[..., Any] = bound(
        code,
        template,
        np.arange(buffers),
        np.array(numbers).ravel(),
        chunks,
        chunks > 1,
        range(last, len(words)),
    )
    if chunks > 1:
        pool().start()
    return made
