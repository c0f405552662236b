"""The names of calls, in PyTorch's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def named(build: Callable[..., Any], name: str) -> None:
    """Show calls of `build` as `name`, where its own name doesn't say it."""
    _BUILDERS[build] = name


_BUILDERS: dict[Any, str] = {}


def name_of(build: Callable[..., Any]) -> str:
    """The name of a call in PyTorch's words, as far as it has one."""
    name = _BUILDERS.get(build) or getattr(build, "__name__", "") or getattr(build, "name", "")
    return str(name).strip("_")
