"""What the modules of libraries share that PyTorch may be built with, and that aren't here.

Their switches can be set and read, and change nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any


def is_available() -> bool:
    return False


def flags_of(module: str) -> Callable[..., AbstractContextManager[None]]:
    """The function `flags` of a module: set switches inside a block, and reset them after it."""

    @contextmanager
    def flags(**switches: Any) -> Iterator[None]:
        own = sys.modules[module]
        before = {name: getattr(own, name) for name in switches}
        try:
            for name, value in switches.items():
                setattr(own, name, value)
            yield
        finally:
            for name, value in before.items():
                setattr(own, name, value)

    return flags
