"""Ctrl-C during in-place writes: the step finishes first."""

from __future__ import annotations

# Without the wrappers of `signal`, which make enums of handlers: they take longer than a launch.
from _signal import SIGINT, getsignal, signal  # type: ignore[import-not-found, unused-ignore]
from threading import current_thread, main_thread
from typing import Any


class deferred:
    """Delay the first SIGINT until the end of the block. A second one is handled at once."""

    __slots__ = ("_held", "_usual")

    def __enter__(self) -> None:
        self._held: tuple[Any, ...] | None = None
        self._usual: Any = getsignal(SIGINT) if current_thread() is main_thread() else None
        if callable(self._usual):
            signal(SIGINT, self._hold)

    def _hold(self, *signaled: Any) -> None:
        self._held = signaled
        signal(SIGINT, self._usual)

    def __exit__(self, *exc: object) -> None:
        if callable(self._usual):
            signal(SIGINT, self._usual)
            if self._held is not None:
                self._usual(*self._held)
