"""torch.distributed.elastic.multiprocessing.errors: errors of processes that a launcher starts."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class ChildFailedError(Exception):
    """A process of a launcher failed. failures: by rank."""

    def __init__(self, name: str, failures: dict[int, Any]):
        super().__init__(f"{name}: processes {sorted(failures)} failed")
        self.name, self.failures = name, failures


def record(fn: F, error_handler: Any = None) -> F:
    """The main function of a process, whose error the launcher is told of: here its status and its
    traceback on stderr tell."""

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return call  # type: ignore[return-value]
