"""The backends of torch.compile by name: PyTorch's, which all mean the one compiler here, and those
that a program registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Any

Backend = Callable[..., Any]

OWN = (
    *("inductor", "cudagraphs", "eager", "eager_noexcept", "eager_debug", "aot_eager"),
    *("aot_eager_decomp_partition", "aot_eager_default_partitioner", "aot_ts", "ts"),
)
"""PyTorch's own that need nothing else."""

_DEBUGGING = OWN[2:]
_registered: dict[str, Backend] = {}
_tags: dict[str, tuple[str, ...]] = {}


def register_backend(
    compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()
) -> Any:
    """Let `torch.compile(backend=name)` mean a backend. name: that of the function by default.
    Without `compiler_fn`: a decorator."""
    if compiler_fn is None:
        return lambda each: register_backend(each, name, tags)
    if not callable(compiler_fn):
        raise AssertionError(f"compiler_fn must be callable, got {type(compiler_fn).__name__}")
    shown = name or compiler_fn.__name__
    if shown in _registered or shown in OWN:
        raise AssertionError(f"duplicate name: {shown}")
    _registered[shown], _tags[shown] = compiler_fn, tuple(tags)
    return compiler_fn


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """The names of backends, without those that have one of the tags."""
    excluded = set(exclude_tags or ())
    own = [name for name in OWN if name not in _DEBUGGING or "debug" not in excluded]
    return sorted([*own, *(n for n in _registered if excluded.isdisjoint(_tags[n]))])


def registered(name: str) -> Backend | None:
    """The backend of a name; None for the one compiler. KeyError if there is none."""
    if name in OWN:
        return None
    if name not in _registered:
        for each in entry_points(group="torch_dynamo_backends"):
            if each.name == name:
                register_backend(each.load(), name)
    return _registered[name]
