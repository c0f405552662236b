"""torch._dynamo.backends.registry: backends of torch.compile by name."""

from __future__ import annotations

from typing import Any

from ...replay.backends import list_backends, register_backend, registered
from ..exc import InvalidBackend

__all__ = ["list_backends", "lookup_backend", "register_backend"]


def lookup_backend(compiler_fn: Any) -> Any:
    """The backend of a name. InvalidBackend if there is none."""
    if not isinstance(compiler_fn, str):
        return compiler_fn
    try:
        found = registered(compiler_fn)
    except KeyError:
        raise InvalidBackend(compiler_fn) from None
    return found or _whole


def _whole(gm: Any, example_inputs: Any, **options: Any) -> Any:
    """The one compiler: each call of the graph is recorded, fused and compiled."""
    return gm.forward
