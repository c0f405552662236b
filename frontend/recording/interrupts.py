"""Signals during in-place writes: the step finishes first."""

from __future__ import annotations

# Without the wrappers of `signal`, which make enums of handlers: they take longer than a launch.
import _signal  # type: ignore[import-not-found, unused-ignore]
from _signal import getsignal, signal  # type: ignore[import-not-found, unused-ignore]
from threading import current_thread, main_thread
from typing import Any

_NAMES = ("SIGINT", "SIGALRM", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
_SIGNALS = [getattr(_signal, name) for name in _NAMES if hasattr(_signal, name)]
"""Ctrl-C, timeouts and what schedulers of clusters send: their handlers may raise."""


class deferred:
    """Delay the first signal of each kind until the end of the block. A second one is handled at
    once."""

    __slots__ = ("_held", "_usual")

    def __enter__(self) -> None:
        self._held: list[tuple[Any, ...]] = []
        self._usual: dict[int, Any] = {}
        if current_thread() is main_thread():
            for number in _SIGNALS:
                handler = getsignal(number)
                if callable(handler):
                    self._usual[number] = handler
                    signal(number, self._hold)

    def _hold(self, number: int, *frame: Any) -> None:
        self._held.append((number, *frame))
        signal(number, self._usual[number])

    def __exit__(self, *exc: object) -> None:
        for number, handler in self._usual.items():
            signal(number, handler)
        while self._held:
            number, *frame = self._held.pop(0)
            self._usual[number](number, *frame)
