"""The Triton emitter: a kernel as readable Python source of a @triton.jit function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .emitted import Argument, Emitted

if TYPE_CHECKING:
    from .emitter import emit

__all__ = ["Argument", "Emitted", "emit"]


def __getattr__(name: str) -> Any:
    # Programs that were compiled ahead of time are run where Triton isn't installed.
    if name == "emit":
        from .emitter import emit

        return emit
    raise AttributeError(name)
