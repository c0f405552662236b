"""What a program needs, and what of it an archive can't have."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from typing import Any

from .errors import PackagingError


def find_first_use_of_broken_modules(exc: PackagingError) -> dict[str, list[str]]:
    """The modules that an archive can't have, each with a path of modules that leads to it."""
    if not isinstance(exc, PackagingError):
        raise TypeError("exception must be a PackagingError")
    graph = exc.dependency_graph
    return {
        name: graph.path_to(name) for name, node in graph.nodes.items() if node.error is not None
    }


def trace_dependencies(
    callable: Callable[..., Any], inputs: Iterable[tuple[Any, ...]]
) -> list[str]:
    """The modules of the functions that calls with these arguments reach."""
    found: dict[str, None] = {}

    def record(frame: Any, event: str, argument: Any) -> None:
        name = frame.f_globals.get("__name__") if event == "call" else None
        if event == "c_call":
            name = getattr(argument, "__module__", None)
        if name:
            found[name] = None

    before = sys.getprofile()
    try:
        for each in inputs:
            sys.setprofile(record)
            callable(*each)
            sys.setprofile(before)
    finally:
        sys.setprofile(before)
    return list(found)
